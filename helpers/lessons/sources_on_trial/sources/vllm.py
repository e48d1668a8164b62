"""vLLM: a cache of keys and values that is handed out in blocks (2023)."""

from helpers.lessons.sources_on_trial.listing import Outcome, kept, tried, untested


def shared_blocks() -> Outcome:
    return (
        "the paper of its authors (arxiv.org/abs/2309.06180, section 6.3), blocks saved of all blocks: beam search 37.6 to 55.2 % with prompts of "
        "Alpaca, 44.3 to 66.3 % of ShareGPT; parallel sampling 6.1 to 9.8 % and 16.2 to 30.5 %",
        "partly: with beam search, by its authors' own paper; parallel sampling saves at most 30.5 %",
    )


CLAIMS = (
    kept("The Secret Sauce", "existing systems waste 60% – 80% of memory due to fragmentation and over-reservation … a mere waste of under 4%", "systems before it waste 60 to 80 % of the cache's memory; in blocks under 4 % are wasted", "20-blocks", evidence="arithmetic"),
    untested("Beyond State-of-the-art Performance", "vLLM achieves up to 24x higher throughput compared to HF", "it makes up to 24 times as many tokens a second as Hugging Face Transformers", "whole systems on an A100 and an A10G, with lengths from a data set, are compared; neither is here"),
    tried("The Secret Sauce", "PageAttention’s memory sharing greatly reduces the memory overhead of complex sampling algorithms, such as parallel sampling and beam search, cutting their memory usage by up to 55%.", "sharing blocks cuts the memory of parallel sampling and beam search by up to 55 %", shared_blocks, evidence="published"),
)  # fmt: skip
