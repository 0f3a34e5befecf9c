"""Plain PyTorch: what every op computes."""
