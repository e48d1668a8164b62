"""gpt-fast: a transformer's generation made ten times as fast, rung by rung (Team PyTorch, 2023)."""

from helpers import simulate
from helpers.lessons.generating import on_card
from helpers.lessons.quantization.recorded import int8_linear
from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested
from helpers.simulator.devices import device

#: tokens a second of Llama-2 7B on an A100, rung by rung, as the post has them
PUBLISHED = {"bf16": 107.0, "int8": 157.4, "int4": 202.1}


def _int8_layer() -> dict[str, float]:
    """Way → how many times as fast as in bfloat16 a layer is whose weights are int8: one token, 4,096 → 4,096, simulated A100."""
    with simulate("A100") as gpu:
        rows = int8_linear(gpu)["table"]
    us = {row["way"]: row["us"] for row in rows if row["tokens"] == 1}
    return {way: us["bfloat16"] / us[f"weights in int8, {way}"] for way in ("one kernel", "converted first")}


def fewer_bits() -> Outcome:
    numbers, peak = on_card.weights("7B") / 2, device("A100").memory_bytes_per_s
    most = {name: peak / (numbers * bits / 8) for name, bits in (("bf16", 16), ("int8", 8), ("int4", 4.5))}
    shares = {name: PUBLISHED[name] / most[name] for name in most}
    said = ", ".join(
        f"{name} {PUBLISHED[name]} of at most {most[name]:.0f} ({shares[name]:.0%})" for name in most
    )
    gains = _int8_layer()
    return (
        f"a layer with int8 weights, one token, simulated A100: {gains['one kernel']:.2f} times as fast as in bfloat16 when one kernel converts them as it "
        f"reads, {gains['converted first']:.2f} when they are converted first; the source: {PUBLISHED['int8'] / PUBLISHED['bf16']:.2f}. Its tokens a "
        f"second against what {peak / 1e9:,.0f} GB/s allow for the {numbers / 1e9:.2f} billion numbers of a token: {said}",
        "refuted" if gains["one kernel"] <= 1 or max(shares.values()) > 1
        else "confirmed" if gains["converted first"] > 1
        else "confirmed: where one kernel converts the weights as it reads them, as the source's do; by less than the bytes shrink",
    )  # fmt: skip


CLAIMS = (
    kept("Step 1", "Reducing CPU overhead through torch.compile and a static kv-cache (107.0 tok/s) … All of a sudden, our performance improves by more than 4x!", "torch.compile and a static cache reduce the CPU's overhead: 25.5 tokens a second before, 107.0 after, more than 4 times as many", "20-static-cache", evidence="simulated (A100)"),
    kept("generate.py", "Does multinomial sampling without a cuda synchronization", "gpt-fast's own draw does multinomial sampling without a CUDA synchronization", "20-no-sync", evidence="live (CPU)"),
    kept("Step 2", "Putting this all together, we get 72% MBU! … we’re clearly bottlenecked on just loading our weights from memory", "loading the weights from memory is the limit: 107 tokens a second are 72 % of an A100's bandwidth", "20-bandwidth"),
    tried("Steps 2 and 4", "If loading our weights from memory is our main bottleneck, why don’t we just make the weights smaller? … 157.4 … 202.1 tok/s", "smaller weights help against that limit: 107.0 tokens a second with 16 bits, 157.4 with 8, 202.1 with 4", fewer_bits, evidence="simulated (A100) · arithmetic"),
    kept("Step 3", "speculative decoding guarantees that we have mathematically identical results compared to regular generation", "speculative decoding gives results that are mathematically identical to regular generation", "20-exact", evidence="arithmetic"),
    untested("Step 3", "when running CodeLlama-34B + CodeLlama-7B, we’re able to obtain a 2x boost in tokens/s for generating code. On the other hand, when using Llama-7B + TinyLlama-1B, we’re only able to obtain about a 1.3x boost in tokens/s", "CodeLlama 34B with a draft of 7B makes 2 times as many tokens a second when it generates code, Llama 7B with TinyLlama 1B only about 1.3 times", "how often a draft is right follows from trained weights, and there are none here"),
    untested("Step 6", "we’re able to serve Llama-70B at 55 tokens/s with int8 quantization", "with tensor parallelism Llama 70B is served at 55 tokens a second with int8", "the number of GPUs and the links between them are not given"),
)  # fmt: skip
