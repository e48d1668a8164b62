"""What the course knows of PyTorch's inside: its private names, its operators, what makes it wait."""
