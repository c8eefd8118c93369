"""Text becomes ids on disk: files, cleaning, tokenizers, stores; no tensors."""
