"""vLLM: a cache of keys and values that is handed out in blocks (2023)."""

from helpers.lessons.sources_on_trial.listing import kept, untested

CLAIMS = (
    kept("The Secret Sauce", "existing systems waste 60% – 80% of memory due to fragmentation and over-reservation … a mere waste of under 4%", "systems before it waste 60 to 80 % of the cache's memory; in blocks under 4 % are wasted", "20-blocks"),
    untested("Beyond State-of-the-art Performance", "vLLM achieves up to 24x higher throughput compared to HF", "it makes up to 24 times as many tokens a second as Hugging Face Transformers", "whole systems on an A100 and an A10G, with lengths from a data set, are compared; neither is here"),
    untested("The Secret Sauce", "cutting their memory usage by up to 55%", "sharing blocks between samples of one prompt saves up to 55 % of their memory", "how much is shared follows from the prompts and answers of the trial, which the post does not give"),
)  # fmt: skip
