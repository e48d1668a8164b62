"""diffusion-fast: Stable Diffusion XL three times as fast, rung by rung (Paul and von Platen, 2024)."""

import torch

from helpers import simulate
from helpers.lessons.sources_on_trial.listing import Outcome, tried, untested

ON_A100 = "simulated (A100)"
_WHOLE = "it takes the whole network on an A100"


def sigmas_on_the_cpu() -> Outcome:
    waits = {}
    with simulate("A100") as gpu:
        sigmas = torch.linspace(1, 0, 30, device=gpu.device)
        steps = {
            "read as numbers": lambda: [float(sigmas[i]) for i in range(5)],
            "left as tensors": lambda: [sigmas[i] * 2 for i in range(5)],
        }
        for name, step in steps.items():
            before = gpu.syncs
            step()
            waits[name] = gpu.syncs - before
    return (
        "five steps that index the noise levels on the card: "
        + ", ".join(f"{name} {n} waits" for name, n in waits.items()),
        "partly: indexing by a number does not wait; reading the element does"
        if waits["left as tensors"] == 0 < waits["read as numbers"]
        else "confirmed",
    )


CLAIMS = (
    untested("Reduced precision", "By using a reduced precision, we’re able to cut down the inference latency from 7.36 seconds to 4.63 seconds", "bfloat16 in place of float32 cuts an image's time from 7.36 to 4.63 seconds", f"{_WHOLE}. What bfloat16 alone wins in products, lesson 10 simulates"),
    untested("SDPA", "SDPA gives a nice boost from 4.63 seconds to 3.31 seconds", "SDPA cuts it from 4.63 to 3.31 seconds", f"{_WHOLE}. What SDPA wins in one layer, lesson 19 simulates"),
    untested("Compiling", "Using SDPA attention and compiling both the UNet and VAE reduces the latency from 3.31 seconds to 2.54 seconds.", "SDPA and compiling UNet and VAE cut it from 3.31 to 2.54 seconds", f"{_WHOLE}. Lesson 11 compiles a small UNet"),
    tried("Getting rid of GPU syncs", "If the sigmas array is placed on the GPU, indexing causes a communication sync between the CPU and GPU", "with the noise levels on the GPU, indexing them makes CPU and GPU wait", sigmas_on_the_cpu, evidence=ON_A100),
    untested("Using combined projections for attention ops", "These additional techniques improved the inference latency from 2.54 seconds to 2.52 seconds.", "without graph breaks and waits, and with one product for q, k and v, it goes from 2.54 to 2.52 seconds", f"{_WHOLE}, and the post does not say what each of the three wins"),
    untested("Dynamic int8", "Applying quantization this way improved the latency from 2.52 seconds to 2.43 seconds", "int8 products for some layers cut it from 2.52 to 2.43 seconds", _WHOLE),
)  # fmt: skip
