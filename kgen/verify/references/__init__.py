"""Naive, short, slow definitions of what operators compute. They import torch and nothing of kgen."""
