"""MuJoCo's equations on batched tensors: model, stages, and the step that joins them."""
