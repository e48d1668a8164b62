"""The repository of the book: two of its scripts print numbers that can be had again."""

from helpers.lessons.sources_on_trial.listing import kept

CLAIMS = (
    kept(
        "chapter 7, 12_pow_model_checkpoint.py",
        "# 使用checkpoint技术显存分配峰值: 628.63671875MB … # 不使用checkpoint技术显存分配峰值: 936.17431640625MB",
        "peak of allocated memory with checkpoints 628.6 MB, without them 936.2",
        "09-book-checkpoint",
        evidence="simulated (H100)",
    ),
    kept(
        "chapter 7, 13_offloading.py",
        'self.layer1.to("cuda") … self.layer1.to("cpu") … # 前向过程中GPU显存占用峰值: 9.328798770904541GB',
        "layers moved to the GPU and back by turns: peak of GPU memory in forward 9.33 GB",
        "09-book-offload",
        evidence="simulated (H100) · arithmetic",
    ),
)
