"""The code of "torch.compile in practice" from its section 5 on: BERT, Stable Diffusion, and what is measured.

The models are small and have random weights: saved in a folder of their own, and read from there by `from_pretrained`.
"""

from __future__ import annotations

import importlib
import tempfile
from typing import Any

import torch

from helpers.lessons.sources_on_trial.snippets.running import (
    CPU,
    SIMULATED,
    Snippet,
    captured,
    counted,
    need,
    snippet,
)
from helpers.simulator import simulate

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "day"]
SMALL = "small, random weights"


def _library(name: str) -> Any:
    """transformers or diffusers, without its bars of progress, which a notebook would keep as dead widgets."""
    importlib.import_module(f"{name}.utils.logging").disable_progress_bar()
    return importlib.import_module(name)


def _bert() -> tuple[Any, Any]:
    """A BERT with two classes, and the two encoded texts."""
    need("transformers")
    transformers = _library("transformers")
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
        model = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=2)
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)})
    return model, tokenizer(["a good day", "a bad day"], truncation=True, padding=True, return_tensors="pt")


def bert_load_written() -> str:
    _, texts = _bert()
    labels = [1, 0]
    return f"{SMALL}: 2 texts, {len(texts)} tensors of {tuple(texts['input_ids'].shape)}; labels are a {type(labels).__name__}"


def bert_load_should() -> str:
    _, texts = _bert()
    labels = torch.tensor([1, 0])
    return f"{SMALL}: 2 texts, {len(texts)} tensors of {tuple(texts['input_ids'].shape)}; labels are a {type(labels).__name__}"


def _bert_trained(labels: Any) -> str:
    model, texts = _bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)

    def steps() -> None:
        compiled = torch.compile(model)
        for _ in range(3):
            compiled(**texts, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return f"{SMALL}: 3 steps, {captured(steps)}"


def bert_train_written() -> str:
    return _bert_trained([1, 0])


def bert_train_should() -> str:
    return _bert_trained(torch.tensor([1, 0]))


def _pipe(**how: Any) -> Any:
    """A Stable Diffusion pipeline for pictures of 16 × 16, read from a folder."""
    need("diffusers", "transformers")
    diffusers, transformers = map(_library, ("diffusers", "transformers"))
    ends, few = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}, {"norm_num_groups": 4}
    letters = ["<|startoftext|>", "<|endoftext|>", *"lake", *(f"{letter}</w>" for letter in "lake")]
    text = transformers.CLIPTextConfig(
        vocab_size=len(letters), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=16, **ends,
    )  # fmt: skip
    whole = diffusers.StableDiffusionPipeline(
        unet=diffusers.UNet2DConditionModel(
            sample_size=8, layers_per_block=1, block_out_channels=(8,), in_channels=4, out_channels=4, mid_block_type=None,
            down_block_types=("CrossAttnDownBlock2D",), up_block_types=("CrossAttnUpBlock2D",), cross_attention_dim=16,
            attention_head_dim=2, **few,
        ),
        vae=diffusers.AutoencoderKL(
            block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2, **few,
        ),
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=transformers.CLIPTokenizer(vocab={one: i for i, one in enumerate(letters)}, merges=[], model_max_length=16),
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        whole.save_pretrained(folder)
        pipe = diffusers.StableDiffusionPipeline.from_pretrained(folder, **how)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def _dtypes(pipe: Any) -> str:
    kinds = {str(part.dtype).removeprefix("torch.") for part in (pipe.unet, pipe.vae, pipe.text_encoder)}
    return f"{SMALL}: its models are {', '.join(sorted(kinds))}"


def pipe_load_written() -> str:
    return _dtypes(_pipe(torch_dtype=torch.float16))


def pipe_load_should() -> str:
    return _dtypes(_pipe(torch_dtype=torch.float16, safety_checker=None))


def _picture(call: Any) -> Any:
    return call("a lake", num_inference_steps=1, guidance_scale=1.0).images[0]


def _counting() -> tuple[list[int], Any]:
    """A backend that runs what was captured, and the operators of each graph it gets. Quicker than a report on so much Python."""
    sizes: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        sizes.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph.forward

    return sizes, backend


def pipe_written() -> str:
    sizes, backend = _counting()
    pipe = torch.compile(_pipe(), backend=backend)
    side = _picture(pipe).size[0]
    return f"{SMALL}: a picture of {side} × {side}, {counted(len(sizes), 'graph')}; what torch.compile gives is a {type(pipe).__name__}"


def pipe_should() -> str:
    sizes, backend = _counting()
    pipe = _pipe()
    pipe.unet = torch.compile(pipe.unet, backend=backend)
    side = _picture(pipe).size[0]
    return f"{SMALL}: pipe.unet compiled, a picture of {side} × {side}, {counted(len(sizes), 'graph')}; it stays a {type(pipe).__name__}"


def utilization_written() -> str:
    return f"{torch.cuda.utilization()} %"


def _work(gpu: Any) -> None:
    a = torch.rand(64, 64, device=gpu.device)
    for _ in range(4):
        a = a @ a


def utilization_should() -> str:
    with simulate("H100") as gpu:
        _work(gpu)
        gpu.synchronize()
        busy = sum(kernel.end_ns - kernel.start_ns for kernel in gpu.kernels)
        share = busy / (gpu.kernels[-1].end_ns - gpu.kernels[0].start_ns)
    return f"in a trace of small products a kernel runs in {'less' if share < 0.5 else 'more'} than half of the time"


def allocated_written() -> str:
    return f"{torch.cuda.memory_allocated():,} bytes allocated, {torch.cuda.memory_reserved():,} reserved, and no error without a GPU"


def allocated_should() -> str:
    with simulate("H100") as gpu:
        a = torch.rand(64, 64, device=gpu.device)
        b = a @ a
        del b
        told = f"{gpu.memory_allocated():,} bytes allocated, {gpu.max_memory_allocated():,} at the peak"
        return f"{told}, {gpu.memory_reserved():,} reserved"


def _timed(timing: bool) -> str:
    with simulate("H100") as gpu:
        start, end = (gpu.Event(enable_timing=True) if timing else gpu.Event() for _ in range(2))
        start.record()
        _work(gpu)
        end.record()
        gpu.synchronize()
        return f"{'some' if start.elapsed_time(end) > 0 else 'no'} time between two events"


def event_written() -> str:
    return _timed(False)


def event_should() -> str:
    return _timed(True)


def _profiled(sort_by: str) -> str:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    x = torch.rand(4, 4)
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True) as prof:
        for _ in range(10):
            torch.mm(x, x)
    prof.key_averages().table(sort_by=sort_by, row_limit=10)
    calls = sum(event.count for event in prof.key_averages() if event.key == "aten::mm")
    return f"a table, sorted by {sort_by}; aten::mm {counted(calls, 'time')}"


def profiler_written() -> str:
    return _profiled("cuda_time_total")


def profiler_should() -> str:
    return _profiled("cpu_time_total") + "; on a GPU device_time_total"


def _one(name: str, *rest: Any, **how: Any) -> Snippet:
    return snippet(f"compile-300/{name}", *rest, **how)


SNIPPETS: list[Snippet] = [
    _one("bert-load", "5.1.1", "BertForSequenceClassification.from_pretrained, train_labels = [1, 0]", bert_load_written, bert_load_should, CPU),
    _one("bert-train", "5.1.2", "compiled_model(**train_encodings, labels=train_labels)", bert_train_written, bert_train_should, CPU),
    _one("pipe-load", "5.2, load", "StableDiffusionPipeline.from_pretrained(…, torch_dtype=torch.float16)", pipe_load_written, pipe_load_should, CPU),
    _one("pipe", "5.2, compile", "compiled_pipe = torch.compile(pipe)", pipe_written, pipe_should, CPU),
    _one("utilization", "6.1.1", "torch.cuda.utilization()", utilization_written, utilization_should, CPU, where_should=SIMULATED),
    _one("allocated", "6.1.1", "torch.cuda.memory_allocated(), memory_reserved()", allocated_written, allocated_should, CPU, where_should=SIMULATED),
    _one("event", "6.1.1", "torch.cuda.Event", event_written, event_should, SIMULATED),
    _one("profiler", "6.2.1", 'table(sort_by="cuda_time_total", row_limit=10)', profiler_written, profiler_should, CPU),
]  # fmt: skip
