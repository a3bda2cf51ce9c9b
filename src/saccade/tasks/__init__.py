"""Tasks: what is learned, one file each: its batches, loss, prediction and figures."""
