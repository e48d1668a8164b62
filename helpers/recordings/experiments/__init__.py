"""What is recorded on a real GPU, one module a lesson; written with the gpu's names only, so it simulates too."""
