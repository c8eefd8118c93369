"""The options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

MODEL = "A bundled model (see regard models), the folder of a run, or a model folder."
TRACE_FILE, TRACE_PAGE = ".safetensors", ".html"  # what a trace is saved as
OUT = "Save the figure here: .png, .svg or .pdf."

Model = Annotated[str, Option("--model", "-m", help=MODEL)]
AnyModel = Annotated[str | None, Option("--model", "-m", help=MODEL, show_default="by the language of the text")]
ModelArgument = Annotated[str, Argument(help=MODEL)]
Source = Annotated[str | None, Option("--from", help="Source language, such as zh.")]
Target = Annotated[str | None, Option("--to", help="Target language, such as en.")]
Reverse = Annotated[bool, Option("--reverse", help="Use the text's second side as the source.")]
Beam = Annotated[int | None, Option(help="Beam size; 1 is greedy search.", show_default="the model's own")]
SetDecode = Annotated[list[str] | None, Option("--set", help="One decoding setting, such as length_penalty=1.0.")]
Set = Annotated[list[str] | None, Option("--set", help="One setting, such as train.lr=3e-4. May be repeated.")]
Limit = Annotated[int, Option(min=1, help="Read at most this many sentence pairs.")]
Precision = Annotated[str, Option(help="float32, int8 (CPU only, faster) or bfloat16 (GPU only, faster).")]
AUTO = "float32, int8 (CPU only, faster), bfloat16 (GPU only, faster), or auto: int8 for bundled models on a CPU."
AutoPrecision = Annotated[str, Option("--precision", help=AUTO)]
Device = Annotated[str, Option(help="cpu, cuda, or auto: a GPU if there is one.")]
Seed = Annotated[int, Option(help="Random seed; the same seed gives the same result.")]
Quick = Annotated[bool, Option("--quick", help="Smaller sizes and fewer repeats: a check that it works.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Out = Annotated[Path | None, Option("--out", "-o", help=OUT)]
