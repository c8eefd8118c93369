"""Trials of a task in processes of their own: a small model leaves a second core, or most of a GPU, idle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from regard.model.classifier import Classifier
from regard.study.crew import side_by_side
from regard.study.task import Task
from regard.study.told import Told
from regard.study.trials import TaskSettings, Trial, make_model, run_trial


@dataclass(frozen=True)
class Job:
    """One trial: what its process must know, and where it leaves what it found."""

    told: Told
    seed: int
    settings: TaskSettings
    device: str
    task: Path
    found: Path


def run_beside(
    task: Task, ways: Sequence[Told], settings: TaskSettings, seeds: Sequence[int], device: torch.device, at_once: int
) -> Iterator[tuple[Trial, Classifier]]:
    """Does what `run_trials` does, so many trials at once, and gives each as it ends; one thread works for each."""
    with TemporaryDirectory(prefix="regard-trials-") as folder:
        kept = Path(folder) / "task.pt"
        torch.save(task, kept)
        chosen = [(told, seed) for told in ways for seed in seeds]
        jobs = [
            Job(*each, settings, str(device), kept, Path(folder) / f"{number}.pt") for number, each in enumerate(chosen)
        ]
        for job, code in side_by_side(learn, jobs, at_once):
            if code:
                raise RuntimeError(f"learning {job.told.name} with seed {job.seed} ended with exit code {code}")
            trial, weights = torch.load(job.found, weights_only=False)  # what our own process wrote
            model = make_model(task, job.told, settings, job.seed)
            model.load_state_dict(weights)
            yield trial, model.to(device)


def learn(job: Job) -> None:
    """Does one trial."""
    torch.set_num_threads(1)
    task: Task = torch.load(job.task, weights_only=False)  # what the parent wrote
    trial, model = run_trial(task, job.told, job.settings, job.seed, torch.device(job.device))
    torch.save((trial, model.cpu().state_dict()), job.found)
