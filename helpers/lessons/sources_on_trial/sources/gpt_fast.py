"""gpt-fast: a transformer's generation made ten times as fast, rung by rung (Team PyTorch, 2023)."""

from helpers.lessons.sources_on_trial.listing import kept, untested

CLAIMS = (
    kept("Step 1", "20-static-cache"),
    kept("generate.py", "20-no-sync"),
    kept("Step 2", "20-bandwidth"),
    kept("Step 3", "20-exact"),
    untested("Step 3", "CodeLlama 34B with a draft of 7B makes 2 times as many tokens a second, Llama 7B with 1B 1.3 times", "how often a draft is right follows from trained weights, and there are none here"),
    untested("Step 6", "tensor parallelism serves Llama 70B at 55 tokens a second with int8", "eight GPUs and their links are not given in numbers"),
)  # fmt: skip
