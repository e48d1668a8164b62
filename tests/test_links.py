"""Links of the lessons: enough of them, to known hosts; API pages name what this torch has; no paper is a bare name.

`python -m tests.long.links` opens each of them, where there is a network.
"""

import importlib
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from helpers.classroom import build
from helpers.classroom import master as masters
from helpers.lesson import sources

#: whose pages stay where they are
HOSTS = {
    "docs.pytorch.org", "pytorch.org", "dev-discuss.pytorch.org", "docs.nvidia.com", "developer.nvidia.com", "docs.python.org",
    "ui.perfetto.dev", "zdevito.github.io", "docs.docker.com", "docs.rs", "docs.ffcv.io", "docs.opencv.org", "ffmpeg.org",
    "numpy.org", "pandas.pydata.org", "huggingface.co", "arxiv.org", "doi.org", "github.com", "blog.ezyang.com",
    "horace.io", "cdn.openai.com", "triton-lang.org",
    "docs.vllm.ai", "blog.vllm.ai",
}  # fmt: skip
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((https?://[^\s)]+)\)")
#: the API's pages: docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html
GENERATED = re.compile(r"docs\.pytorch\.org/docs/[^/]+/generated/(torch[\w.]*?)\.html")
LESSONS = [path.stem for path in build.find([])]


def texts(name: str) -> Iterator[str]:
    for cell in masters.read(build.find([name])[0]).cells:
        if cell.kind == "markdown":
            yield cell.source


def links(name: str) -> dict[str, str]:
    """Address → the words that lead there, for the texts of a lesson."""
    return {address: words for text in texts(name) for words, address in LINK.findall(text)}


@pytest.mark.parametrize("name", LESSONS)
def test_links_are_enough_and_well_formed(name: str) -> None:
    found = links(name)
    assert len(found) >= 5, f"{name}: {len(found)} links"
    for address, words in found.items():
        parts = urlsplit(address)
        assert parts.scheme == "https", f"{name}: {address}"
        assert parts.hostname in HOSTS, f"{name}: {parts.hostname} is not in HOSTS: will {address} stay?"
        assert words.strip("*` "), f"{name}: no words lead to {address}"


@pytest.mark.parametrize("name", LESSONS)
def test_a_page_of_the_api_is_of_something_that_is_there(name: str) -> None:
    for address in links(name):
        for path in GENERATED.findall(address):
            assert exists(path), f"{name}: {address}: this torch has no {path}"


def exists(path: str) -> bool:
    module, _, rest = path.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), rest) if module else True
    except ImportError:
        owner, _, kind = module.rpartition(".")
        try:
            return hasattr(getattr(importlib.import_module(owner), kind), rest)
        except (ImportError, AttributeError):
            return False


@pytest.mark.parametrize("name", LESSONS)
def test_no_paper_is_a_bare_name(name: str) -> None:
    """In *Read on*, what stands in italics with its year behind it is the text of a link."""
    for text in texts(name):
        for part in re.findall(r"(?s)\*\*Read on\*\*:?(.*?)(?:\n\n|\Z)", text):
            assert LINK.search(part), f"{name}: Read on without a link"
            bare = re.findall(r"\*[^*]{8,}\*\s*(?:,[^(]{0,40})?\(\d{4}", LINK.sub("", part))
            assert not bare, f"{name}: without a link: {bare}"


def test_sources_say_whose_they_are() -> None:
    for key, about in sources.every().items():
        assert {"title", "english", "author"} <= about.keys(), key
        assert about.get("url", "https://").startswith("https://"), key
