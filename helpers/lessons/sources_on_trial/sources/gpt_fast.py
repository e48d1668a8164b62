"""gpt-fast: a transformer's generation made ten times as fast, rung by rung (Team PyTorch, 2023)."""

from helpers.lessons.generating import on_card
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.simulator.devices import device

#: tokens a second of Llama-2 7B on an A100, rung by rung, as the post has them
PUBLISHED = {"bf16": 107.0, "int8": 157.4, "int4": 202.1}


def fewer_bits() -> Outcome:
    numbers, peak = on_card.weights("7B") / 2, device("A100").memory_bytes_per_s
    most = {name: peak / (numbers * bits / 8) for name, bits in (("bf16", 16), ("int8", 8), ("int4", 4.5))}
    shares = {name: PUBLISHED[name] / most[name] for name in most}
    said = ", ".join(
        f"{name} {PUBLISHED[name]} of at most {most[name]:.0f} ({shares[name]:.0%})" for name in most
    )
    falling = shares["bf16"] > shares["int8"] > shares["int4"]
    return (
        f"tokens a second, published against what an A100's memory allows for the weights alone: {said}",
        "partly: each rung is faster, and each comes less near to what its bytes allow"
        if falling
        else "confirmed",
    )


CLAIMS = (
    kept("Step 1", "20-static-cache"),
    kept("generate.py", "20-no-sync"),
    kept("Step 2", "20-bandwidth"),
    tried("Steps 2 and 4", fewer_bits, "weights in 8 and 4 bits take the bandwidth's limit away: 107.0, 157.4, 202.1 tokens a second", evidence="arithmetic"),
    kept("Step 3", "20-exact"),
    untested("Step 3", "CodeLlama 34B with a draft of 7B makes 2 times as many tokens a second, Llama 7B with 1B 1.3 times", "how often a draft is right follows from trained weights, and there are none here"),
    untested("Step 6", "tensor parallelism serves Llama 70B at 55 tokens a second with int8", "eight GPUs, and the links between them are not given"),
)  # fmt: skip
