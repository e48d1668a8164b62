# %% [markdown]
# # 20 · Generating
#
# ## Why does one token take so long?
#
# One token of a model with 7 billion weights takes {{operations:.0f}} billion operations. An H100 can do that many in {{least_ms:.3f}} ms. The token takes
# {{token_7b:.1f}} ms (simulated): **about {{too_long:.0f}} times as long**. And GPT-2 has {{smaller:.0f}} times fewer weights. Is its token {{smaller:.0f}} times as fast? In this
# lesson you find out what a token waits for, and write what makes generating fast.
#
# **Time** 60 min, two exercises among them; *Further*: 90 min, with a scheduler, speculative sampling, a cache in blocks, and a model that
# leaves Python. **Before this** lessons 02 and 03 (operators, waits) and 11 (`torch.compile`); 07 (CUDA graphs) is of use.
#
# **Afterwards you can**
# - say what limits a token: launches, kernels that are too small, bytes or arithmetic;
# - write a cache of keys and values that copies only what is new;
# - write a decoding loop with one shape and without waits, and say how to keep its batch full.

# %% setup
import torch
from torch.nn import functional as F

from helpers import count, lesson
from helpers.lessons.generating import batching, decoding, experiments, on_card

torch.set_num_threads(1)
lesson.start(
    "20_generating",
    evidence=["live (CPU)", "simulated (H100)", "recorded (H100)", "simulated (A100)", "arithmetic"],
)

# %% [markdown]
# ## 1 · One token
#
# Generating has two phases. **Prefill** reads the prompt: all its tokens go through the model at once. **Decoding** then makes
# one token after the other: each one has to be known before the next can begin.
#
# Two models are tried on a simulated H100, in bfloat16: GPT-2 with 124 million weights, and a model of the same kind with as
# many weights as Llama-2 7B. All kernels of a pass are launched at once, as a CUDA graph (lesson 07). A text has 1,024 tokens. Either its last
# token goes through the model, or its last 64 at once. What the model has to know of the earlier ones is kept in memory, in the **cache** (section 2).
#
# One by one the 7B model makes {{rate_7b:.0f}} tokens a second. If 64 tokens of one sequence go through it at once, as in prefill: how many a second? And what limits one
# token of the 7B model, and one of GPT-2? (The *least time* is what a kernel takes even if it does nearly nothing.)

# %% experiment
LIMITS = ["arithmetic", "bytes of the weights", "the least time of each kernel"]
you = lesson.predict(
    {"7B, 64 at once: tokens a second": ..., "7B, one token": ..., "GPT-2, one token": ...},
    choices={
        "7B, 64 at once: tokens a second": [150, 600, 2500, 9000],
        "7B, one token": LIMITS,
        "GPT-2, one token": LIMITS,
    },
)

# %% experiment
costs = {(name, n): on_card.cost(name, tokens=n, graph=True) for name in ("GPT-2", "7B") for n in (1, 64)}
eager = {name: on_card.cost(name) for name in ("GPT-2", "7B")}
lesson.keep(gpt2_launches=eager["GPT-2"].launches, launches_7b=eager["7B"].launches)
lesson.keep(floor_7b=1e3 * experiments.reading_s("7B"), token_7b=1e3 * costs["7B", 1].seconds)
riddle = experiments.riddle(costs)
lesson.keep(
    operations=riddle.operations / 1e9, least_ms=1e3 * riddle.least_s, too_long=round(riddle.too_long, -2)
)
lesson.keep(rate_7b=riddle.rate, smaller=riddle.smaller, sooner=riddle.sooner)
lesson.keep(a_kernel=1e6 * costs["GPT-2", 1].seconds / eager["GPT-2"].launches)
lesson.keep(a_launch=1e6 * eager["GPT-2"].seconds / eager["GPT-2"].launches)
you.against(
    experiments.limits(costs),
    experiments.tokens_at_once(costs),
    experiments.floors(costs, eager),
    evidence="simulated (H100)",
)

# %% [markdown]
# For one token **every weight is read once**, and used in two operations, one multiplication and one addition. A card can
# do hundreds of operations in the time in which its memory delivers one number. 64 tokens at once read the same weights once, too. So
# the 7B model takes hardly longer for them. Its weights take {{floor_7b:.1f}} ms to read at the bandwidth on paper; its token takes
# {{token_7b:.1f}} ms. In this simulation kernels that read weights for one token reach about two thirds of that bandwidth, so most of this time is reading weights. What remains is the cache and small kernels. No faster arithmetic
# helps there.
#
# GPT-2's token is only {{sooner:.0f}} times as fast. Reading so small a model takes a small part of that time. As a graph, its {{gpt2_launches}} kernels take
# {{a_kernel:.0f}} µs each: nearly all do so little that they take the least time which any kernel takes, with one token or with 64. Launched one by
# one, they wait for the CPU, which needs {{a_launch:.0f}} µs for each launch. A graph removes the launches.
#
# So a token has **four limits**. For each kernel the largest one counts:
#
# 1. the CPU's launches, where it does not keep up; a graph removes them, and a **batch** shares them;
# 2. the least time of each kernel; fewer kernels help (lesson 11), and so does a batch: a product as small as these takes hardly longer for 8 sequences than
#    for one;
# 3. the bytes that are read; a batch helps here too: several sequences share one reading of the weights;
# 4. the arithmetic, which is far away as long as one token is made at a time.

# %% [markdown]
# So a batch should cost the 7B model nearly nothing, as long as the weights are what is read. But each *sequence* has a cache of its
# own, and reads that too. From how many sequences of 1,024 tokens on does a step read more of caches than of weights? (The model has 32 layers. For each token and layer
# a cache holds a key and a value of 4,096 numbers each, of 2 bytes.)

# %% experiment
you = lesson.predict({"more cache than weights, from … sequences on": ...}, choices=[4, 24, 200])

# %% experiment
by_batch = {n: on_card.cost(batch=n, graph=True) for n in (1, 8, 64, 256)}
by_batch_7b = {n: on_card.cost("7B", batch=n, graph=True) for n in (1, 8, 24, 64)}
a_cache = on_card.cache_bytes("7B", 1024)
alike = {"more cache than weights, from … sequences on": on_card.weights("7B") / a_cache}
batch_times = by_batch_7b[24].seconds / by_batch_7b[1].seconds
lesson.keep(batch_times_7b=batch_times, batch_rate_7b=24 / batch_times)
lesson.keep(gpt2_mib=on_card.weights("GPT-2") / 2**20, gpt2_eight=by_batch[8].seconds / by_batch[1].seconds)
lesson.keep(a_cache=a_cache / 2**30, caches_fit=(80e9 - on_card.weights("7B")) / a_cache)
you.against_ratios(
    alike,
    experiments.by_batch(by_batch_7b, title="7B: a step by the number of sequences"),
    evidence="simulated (H100) · arithmetic",
    what="sequences",
    shown="{:.1f}",
)

# %% [markdown]
# A cache of 1,024 tokens has {{a_cache:.1f}} GiB. With 24 sequences a step takes {{batch_times_7b:.1f}} times as long as with one, and makes 24 tokens in place of one: {{batch_rate_7b:.0f}} times
# as many a second. From there on the caches are the larger part, and the time grows with the sequences. (The bytes have doubled, the time has not: here attention
# reads the caches nearer to the card's bandwidth than the products read the weights.) For GPT-2 this comes sooner: eight caches have more bytes than its
# {{gpt2_mib:.0f}} MiB of weights, and a step for eight takes {{gpt2_eight:.1f}} times as long as one for one.
#
# Is that so on a real card? The same steps on an H100, with random weights:

# %% experiment
lesson.keep(graph_7b=experiments.graph_gain_7b())
experiments.recorded_7b()

# %% [markdown]
# As a graph the real steps are within a tenth of the simulated ones. Launched one by one they are longer: the CPU of that machine is slower than the simulated one (lesson 02). (The error under the tables is that of
# the GPU's work. Launches take *your* CPU's time, which may be several times as long.) A graph hides
# that, and so does a large batch, whose kernels last longer than their launches.
#
# ## 2 · What to keep
#
# Attention of a new token looks at the *keys* and *values* of all tokens before it. These do not change any more, because no token looks at a
# later one. There are three ways to have them:
#
# - **No cache**: all tokens go through the model again for each new one.
# - **A growing cache**: keys and values are kept, and `torch.cat` makes a longer tensor for each token.
# - **A static cache**: room for all places is taken once. A new token's keys and values are written in place, and a mask hides
#   the places that are not written yet.
#
# In a layer a cache is one line before
# [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html),
# and the rest of the model stays as it is:
#
# ```python
# k, v = cache.add(places, k, v)  # in: those of the new tokens; out: those of all places
# mask = torch.arange(k.shape[2], device=k.device) <= places[:, None]  # of a static cache: what is written
# y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
# ```
#
# The 1,024th token of GPT-2 is made, and its kernels are launched one by one.
#
# - With one sequence, does a static cache gain anything against no cache? (Only a third or more counts: less is within the simulation's error.)
# - Which way is fastest with 64 sequences?
# - Six tokens are made one by one with a growing cache, so with six shapes. How many graphs does `torch.compile` make (not CUDA graphs)?

# %% experiment
you = lesson.predict(
    {"1 sequence: a static cache": ..., "64 sequences": ..., "six shapes: graphs": ...},
    choices={
        "1 sequence: a static cache": ["gains a third or more", "gains less, or loses"],
        "64 sequences": ["no cache", "growing", "static"],
        "six shapes: graphs": [1, 2, 6],
    },
)

# %% experiment
WAYS = ("no cache", "growing", "static")
by_way = {(way, batch): on_card.cost(batch=batch, way=way) for way in WAYS for batch in (1, 64)}
graphs = experiments.graphs_compiled()
lesson.keep(
    cat_gib=by_way["growing", 64].cat_bytes / 2**30, cache_mib=on_card.cache_bytes("GPT-2", 1024) / 2**20
)
lesson.keep(without_7b=1e3 * on_card.cost("7B", way="no cache").seconds, static_7b=1e3 * eager["7B"].seconds)
lesson.keep(growing_graphs=graphs["growing"], static_graphs=graphs["static"])
you.against(
    experiments.fastest(by_way, graphs),
    experiments.ways(by_way, {batch: by_batch[batch] for batch in (1, 64)}),
    experiments.counted(experiments.live_counts(count)),
    evidence="simulated (H100) · live (CPU)",
)

# %% [markdown]
# And on a real H100, beside its slower CPU:

# %% experiment
launched, as_graph = experiments.recorded_static()
lesson.keep(slow_ms=max(launched), quick_ms=min(launched))
lesson.keep(least_gain=min(launched) / as_graph, most_gain=max(launched) / as_graph)
experiments.recorded_ways()

# %% [markdown]
# **One sequence.** The surprise: with launches one by one, a cache gains a small model nothing. A launch takes the CPU equally long,
# whatever the kernel does. (The recorded CPU's speed varied by two: as many launches of the static way took {{slow_ms:.1f}} ms in one row, and {{quick_ms:.1f}} in another. So in its
# column only differences of several times say something.) Without a cache there are fewer launches, and most of the computing is done while
# they are made. In each layer a static cache adds two writes, and three operators by which SDPA turns the mask's bools into numbers. For
# the 7B model computing costs far more: {{without_7b:.1f}} ms without a cache, {{static_7b:.1f}} ms with a static one (simulated, not in
# the table). On the CPU, where arithmetic costs, *no cache* takes by far the longest.
#
# **64 sequences.** The way *no cache* computes everything again. The growing cache moves {{cat_gib:.1f}} GiB for each token, only to
# make room for one more place. The static cache writes what is new.
#
# **Shapes.** `torch.compile` makes {{growing_graphs}} graphs, and not six: at the second shape it makes one for any length (lesson 11). With the static cache it makes
# {{static_graphs}}. But a *CUDA* graph has one shape, so the growing cache would need one for each length. With the static cache one
# graph is replayed for all tokens, and the row *static, as a graph* wins in both halves of the table. **This is what the static cache is for.** Its price:
# room for all places from the beginning, {{cache_mib:.0f}} MiB a sequence here, and attention that reads places which are still empty (lesson 21 has a
# kernel that reads only the filled ones).
#
# (*No cache*, padded to 1,024 places, has one shape too. With one sequence its graph may come near. With 64 the computing alone takes
# longer.)

# %% [markdown]
# **Exercise 20.1 — a static cache** (★, 7 min)
#
# Write the cache of one layer. (Here a plain class. Where `torch.compile` makes the graph, its two tensors have to be buffers of a
# module: *Your own script*.) The test runs a small GPT-2 with it, prompt first, then token by token. It compares the logits with
# those of the model without a cache.
#
# <details><summary>Hint 1</summary><code>places</code> is a tensor on the device. Which operators write at the places that such a
# tensor names? (<code>places[0].item()</code> would wait.)</details>
#
# <details><summary>Hint 2</summary>A masked place counts 0 times its value. What is 0 times what <code>torch.empty</code> may
# hold?</details>
#
# <details><summary>The idea</summary>Two tensors of <code>torch.zeros</code> in <code>__init__</code>;
# <code>self.keys.index_copy_(2, places, k)</code>, the same for the values; return both whole.</details>


# %% exercise="static_cache"
class StaticCache:
    """Keys and values of one layer, in memory that is taken once.

    StaticCache(batch, heads, length, features, dtype=torch.float32, device="cpu"): room for `length` places, each with
    `features` numbers a head for its key and as many for its value.

    add(places, k, v) → (keys, values): writes n new tokens, returns the whole cache.
    places: (n,), int64, on the device: where the new tokens stand. In any order, none twice; a later call may write one again.
    k, v: (batch, heads, n, features), of the cache's dtype. The caller may write over them afterwards.
    keys, values: (batch, heads, length, features), in each call the same memory. A place that nobody has written holds
    finite numbers (the model masks it).

    The test calls it under torch.no_grad(), as one generates.

    Budget of each add(): 0 new storages, 0 waits. On the simulated GPU: the bytes of reading k, v and places once, and of
    writing k and v once, times 1.25.
    """

    def __init__(self, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        ### BEGIN SOLUTION
        self.keys = torch.zeros(batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        ### END SOLUTION

    def add(self, places: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        ### BEGIN SOLUTION
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        return self.keys, self.values
        ### END SOLUTION


# %% test="static_cache" points=1
from helpers.lessons.generating.exercises import Passes, check_StaticCache

check_StaticCache(
    Passes(((0, 1, 2), (3,), (4,))),  # three tokens of a prompt, then two more
    Passes(((0, 1), (2,), (3,)), length=4),  # full to the last place
)

# %% hidden="static_cache" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.generating.exercises import Passes, check_StaticCache

check_StaticCache(
    Passes(((0,), (1,), (2,)), length=3, batch=3, dtype="float64"),
    Passes(((0, 1, 2, 3), (4,), (5,), (4,), (5,), (6,)), length=9),
    Passes(((0, 1, 2), (3, 4, 5), (6,)), length=7, heads=1, features=6, dtype="float64"),
    Passes(((1, 0, 2), (3,)), length=5, batch=1),
    Passes(((0, 1, 2, 3, 4), (5,), (6,)), heads=3, dtype="bfloat16"),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 3 · A loop without a wait
#
# Two loops make the same tokens:
#
# - **asks** reads each token on the CPU, `int(logits.argmax())`, to print it or to see whether it is the end. Then it sends the token and its
#   place back. These are three waits for each token (lesson 03).
# - **stays** leaves the tokens and their places on the card.
#
# Each makes 8 tokens of GPT-2, once with kernels launched one by one, and once with a step that is one CUDA graph:
#
# ```python
# graph = torch.cuda.CUDAGraph()
# with torch.cuda.graph(graph):  # after a warm-up: the kernels are recorded, with the addresses of all tensors
#     logits = model(token, places)
#
# def step(new, at):
#     token.copy_(new)  # the graph reads its own two tensors
#     places.copy_(at)
#     graph.replay()  # all kernels, by one launch
#     return logits
# ```
#
# You have been told never to write `.item()` in a loop. What does asking cost, a token, in either case? And how many times as fast does the graph make the loop
# that stays? (Both on the simulated H100, whose CPU is quick.)

# %% experiment
WAITS = ["0.05 ms", "0.5 ms", "5 ms"]
you = lesson.predict(
    {"asking, one by one": ..., "asking, one graph": ..., "a graph: times as fast": ...},
    choices={
        "asking, one by one": WAITS,
        "asking, one graph": WAITS,
        "a graph: times as fast": ["1.1 ×", "2.5 ×", "10 ×"],
    },
)


# %% experiment
def asks(gpu, step, token, place, n):
    for i in range(n):
        logits = step(token, torch.tensor([place + i]).to(gpu.device))  # waits for the copy
        said = int(logits.argmax())  # waits for the token
        token = torch.tensor([[said]]).to(gpu.device)  # waits for the copy


def stays(gpu, step, token, place, n):
    places = torch.full((1,), place, device=gpu.device)
    for _ in range(n):
        token = step(token, places).argmax(-1, keepdim=True)
        places = places + 1


loops = {
    "asks, one by one": experiments.loop_cost(asks, 8),
    "stays, one by one": experiments.loop_cost(stays, 8),
    "asks, one graph": experiments.loop_cost(asks, 8, graph=True),
    "stays, one graph": experiments.loop_cost(stays, 8, graph=True),
}
said, wait_s, graph_gain = experiments.asking(loops)
lesson.keep(graph_gain=graph_gain, wait_ms=1e3 * wait_s["one graph"])
lesson.keep(wait_long=wait_s["one by one"] / loops["stays, one by one"].seconds)
lesson.keep(wait_short=wait_s["one graph"] / loops["stays, one graph"].seconds)
you.against(said, experiments.loops(loops), evidence="simulated (H100)")

# %% [markdown]
# Asking, with its three waits, costs about {{wait_ms:.2f}} ms a token, with a graph or without: {{wait_long:.0%}} of a token that is launched one by
# one, {{wait_short:.0%}} of a graph's. (The same simulated kernels stand on both sides, so a small difference counts.) Why so little? The next token needs this
# one in any case, so only the way to the CPU and back is lost. (In training a wait costs more: it also ends the overlap of two steps.) **The rule that everybody knows buys
# a few percent. For GPT-2 the graph makes a token {{graph_gain:.1f}} times as fast.** With the slower CPU of the recorded H100 it gains far more: {{least_gain:.0f}} to {{most_gain:.0f}} times
# (its {{quick_ms:.1f}} and {{slow_ms:.1f}} ms of section 2, against the graph's time with one sequence). The graph needs two things: one shape, and places in a tensor on the
# card, not Python numbers. (The loop with the graph has five launches: two copies, the graph, `argmax`, the next place.)
#
# On a real A100, [gpt-fast](https://pytorch.org/blog/accelerating-generative-ai-2/) went from 25.5 to 107.0 tokens a second with Llama-2 7B, by a
# static cache and a compiled step with CUDA graphs (Team PyTorch, 2023). Here a graph would gain the 7B model nothing: the simulated CPU launches its
# {{launches_7b}} kernels while they run. The recorded CPU is slower, and a graph gains {{graph_7b:.1f}} times (section 1). At first
# theirs took 39 ms for a token: a slower CPU, more launches (Llama's norms and rotary positions are many small operators), or both. Measure yours first.
#
# (Sampling a token, in place of the likeliest
# one, need not wait either: *Further*.)
#
# One question remains: when is the text at its end? To know it, somebody has to ask. Ask once every few steps. What
# a row makes after its end is replaced by the token *end*.

# %% [markdown]
# **Exercise 20.2 — a loop that hardly ever asks** (★★, 10 min)
#
# Write the loop for a batch of texts, a row each. It always takes the likeliest token. Rows end at different steps, and the loop stops
# early when all have ended.
#
# <details><summary>Hint 1</summary>Everything that changes from step to step is a tensor on the card: the tokens, the place,
# and which rows have ended.</details>
#
# <details><summary>Hint 2</summary><code>torch.where(ended, end, tokens)</code> needs no question. A place on the card grows by
# <code>places + 1</code>; <code>torch.full</code> makes the first one without a copy.</details>
#
# <details><summary>The idea</summary>In each step: likeliest tokens, <code>end</code> where a row had ended, note who has
# ended now, keep the column, next place. After each <code>every</code> steps <code>bool(ended.all())</code>. At last
# <code>torch.cat</code>.</details>


# %% exercise="generate"
def generate(step, tokens: torch.Tensor, place: int, most: int, end: int, every: int) -> torch.Tensor:
    """The tokens that follow, in each step the likeliest one: (batch, made), int64, on the device of `tokens`.

    step(tokens, places) → logits (batch, words): a recorded graph. In each call it wants tokens (batch, 1) and places (1,),
    int64, on the device. It copies both into the graph's own tensors: you may pass new ones, or write yours over. It writes the
    cache at that place. The next call writes over its logits. words: the vocabulary's size.
    tokens: (batch, 1), int64: the last token of each prompt. Do not write over them. An `end` among them ends nothing: only
    tokens that are made here count. place: a number, where these last tokens stand. most, every: 1 or more.

    A row that has made `end` makes `end` from then on, and step() is given `end` for it. After each `every` steps, and not
    in between, the loop looks whether all rows have ended, and stops if so. It stops after `most` steps in any case.
    made: the number of steps.

    Budget: no more steps than these; one wait for each full `every` steps. Besides, before the first step, at most 2
    waits and 2 copies from the host.
    """
    ### BEGIN SOLUTION
    places = torch.full((1,), place, device=tokens.device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    made = []
    for i in range(1, most + 1):
        tokens = torch.where(ended, end, step(tokens, places).argmax(1, keepdim=True))
        ended = ended | (tokens == end)
        made.append(tokens)
        places = places + 1
        if i % every == 0 and i < most and bool(ended.all()):
            break
    return torch.cat(made, dim=1)
    ### END SOLUTION


# %% test="generate" points=1
from helpers.lessons.generating.exercises import Texts, check_generate

check_generate(
    # each row: the tokens that the model would make
    Texts(((3, 1, 2, 4, 5),), most=5, end=0, every=8),  # never ends, and nobody has to ask
    Texts(
        ((3, 1, 2, 0, 5, 5), (4, 0, 1, 1, 1, 1)), most=6, end=0, every=2
    ),  # both have ended after four steps
)

# %% hidden="generate" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.generating.exercises import Texts, check_generate

check_generate(
    Texts(((0, 1, 1, 1, 1, 1, 1, 1), (1, 0, 2, 2, 2, 2, 2, 2)), most=8, end=0, every=3),
    Texts(((1, 1, 1), (2, 2, 2)), most=3, end=0, every=1),
    Texts(((1, 1, 1, 1, 7, 2, 2, 2, 2), (2, 7, 3, 2, 2, 2, 2, 2, 2)), most=9, end=7, every=3, place=0),
    Texts(((0,), (0,), (3,)), most=1, end=0, every=1),
    Texts(((1, 0, 2, 2), (4, 2, 2, 0)), most=4, end=0, every=2, asked_end=True),
    Texts(
        ((4, 4, 0, 1, 1, 1, 1), (5, 0, 0, 6, 1, 1, 1), (0, 1, 2, 3, 3, 3, 3)),
        most=7,
        end=0,
        every=3,
        place=90,
    ),
    Texts(((1, 0, 5, 5, 5, 5), (2, 2, 2, 2, 2, 0)), most=6, end=0, every=4),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Many requests
#
# In a batch sequences share each kernel, and each reading of the weights. But requests end at different steps: a short answer beside a long one.
#
# - **Static batching**: a batch is filled, runs until its last request has ended, and then the next one is filled.
# - **Continuous batching**: whenever a request ends, the next one takes its slot.
#
# 64 requests wait, and there are 8 slots. A request makes {{request_mean:.0f}} tokens on average, and the longest {{request_most}}. In each step each slot could make one
# token. What share of all these tokens is really made?

# %% experiment
you = lesson.predict(
    {"static": ..., "continuous": ...}, choices=["about 20 %", "about 40 %", "about 60 %", "about 80 %"]
)

# %% experiment
tokens = batching.lengths(64)
lesson.keep(request_mean=sum(tokens) / len(tokens), request_most=max(tokens))
step_s = by_batch[8].seconds
runs = {policy: batching.batched(tokens, 8, policy) for policy in batching.POLICIES}
gain = runs["static"].steps / runs["continuous"].steps
lesson.keep(batching_gain=gain)
you.against(
    {name: f"about {20 * round(5 * run.used)} %" for name, run in runs.items()},
    experiments.batches(runs, dict.fromkeys(runs, step_s)),
    *(batching.batching_explorer(policy, slots=4, requests=16).static() for policy in batching.POLICIES),
    evidence="arithmetic",
)

# %% [markdown]
# In the pictures (4 slots, 16 requests) the grey slots are paid for and empty. A static batch lasts as long as its longest request. The
# 64 requests of the table take {{batching_gain:.1f}} times as many steps in static batches. A step costs the same, whether its slots are full or not: the graph has one
# shape, so empty slots are computed too. (Continuous batching does not fill all slots either: at the end nobody waits any more, and the last
# requests run beside empty slots. Left out here: a new request's prefill delays the others.)
#
# **Move it.** (1) Try other lengths, with both policies. Is static batching ever faster? (2) With how many slots are the two alike?
#
# <details><summary>Answers</summary>(1) Never: continuous batching lets no request wait longer than static batching does. It gains most
# where a long request stands among short ones. (2) With one slot, where each batch is one request; and with as many slots as requests,
# where nobody waits.</details>

# %% experiment
batching.batching_explorer("static", slots=6, requests=12)

# %% [markdown]
# A published figure is larger: [23 times the throughput](https://www.anyscale.com/blog/continuous-batching-llm-inference)
# (Cade Daniel and others, Anyscale, 2023). That compares whole systems: continuous batching, and memory that
# is handed out in blocks, so that more sequences fit.
#
# Each slot now stands at a place of its own. The shape is still one, and one graph is still enough. (*Places of their own*, in *Further*, has
# the lines. The `generate` of 20.2 is simpler: all its rows stand at one place.)
#
# You write such a scheduler in *Further*.

# %% [markdown]
# ### What did each step buy?
#
# The simple loop has no cache and asks for each token. Five steps, one on top of the other: *a static cache*, *no waits*, *one graph*, *eight slots* with static batches,
# and *continuous batching*. How many of them gained 1.5 × or more, on the simulated card? And how much is it for all five together?

# %% experiment
you = lesson.predict(
    {"steps that gain 1.5 × or more": ..., "all five": ...},
    choices={"steps that gain 1.5 × or more": [1, 2, 3, 4], "all five": ["3 ×", "10 ×", "30 ×"]},
)

# %% experiment
rates = {
    "no cache, and it asks": 1 / (by_way["no cache", 1].seconds + wait_s["one by one"]),
    "a static cache": 1 / loops["asks, one by one"].seconds,
    "no waits": 1 / loops["stays, one by one"].seconds,
    "one graph": 1 / loops["stays, one graph"].seconds,
    "eight slots": runs["static"].tokens / (runs["static"].steps * step_s),
    "continuous batching": runs["continuous"].tokens / (runs["continuous"].steps * step_s),
}
first = rates["no cache, and it asks"]
lesson.keep(all_steps=rates["continuous batching"] / first, one_text=rates["one graph"] / first)
you.against(experiments.gained(rates), experiments.steps_up(rates), evidence="simulated (H100) · arithmetic")

# %% [markdown]
# **{{all_steps:.0f}} times as many tokens a second, and no kernel became faster.** (GPT-2, simulated.) This is for all requests together. One text alone got {{one_text:.1f}} times faster.
# The cache by itself gains nothing, and makes the graph possible. The famous advice, no waits, gains a few percent. On a machine
# with a slower CPU the graph's step is larger, and so is the whole. The last factor of two is a few lines of
# plain Python, which decide who runs. (They have to know who has ended. If they ask once a step for all slots, most of the few percent is lost again, which is left
# out here. Or they ask every few steps, as in 20.2, and a slot stands empty until then.)
#
# ## The running example
#
# The small GPT of the course, trained for a few steps, writes 32 bytes. First the simple way: everything through the model
# for each byte. Then with the cache, in a few lines: its blocks stay as they are, and only attention gets something to remember.


# %% experiment
def with_cache(model, n):
    place, token, said = torch.zeros(1, dtype=torch.int64), torch.tensor([[84]]), []  # byte 84 is "T"
    for block in model.blocks:
        cache = decoding.Fixed((1, 4, 64, 32))  # or your own: StaticCache(1, 4, 64, 32)
        block.attention = lambda q, k, v, cache=cache: F.scaled_dot_product_attention(
            q, *cache.add(place, k, v), attn_mask=torch.arange(64) <= place[:, None]
        )
    with torch.no_grad():
        for _ in range(n):
            x = model.tokens(token) + model.places(place)
            for block in model.blocks:
                x = block(x)
            token = model.head(model.norm(x))[:, -1].argmax(-1, keepdim=True)
            said.append(token)
            place += 1
    return torch.cat(said, 1)[0].tolist()


# %% experiment
from copy import deepcopy

from helpers import running_example

model = running_example.trained(running_example.after("06"), 10)
seen = {
    "no cache": count(experiments.without_cache, model, 32),
    "static cache": count(with_cache, deepcopy(model), 32),
}
assert seen["no cache"].result == seen["static cache"].result
lesson.keep(script_flops=seen["no cache"].flops / seen["static cache"].flops)
lesson.keep(script_operators=seen["static cache"].operators / seen["no cache"].operators)
experiments.written(seen)

# %% [markdown]
# The same 32 bytes, with {{script_flops:.0f}} times fewer FLOPs, and {{script_operators:.2f}} times as many operators. On a
# GPU this small model would be limited by
# its launches, so the cache alone would buy nothing there: it makes the one shape with which a graph can be recorded.
#
# ## Your own script
#
# `torch.profiler` says whether a loop that generates asks the device for each token, and whether it copies what grows. Here is a loop with
# both faults. Its toy model knows no tokens, so a row of x stands for a token, and the new row is made of the last one.

# %% experiment
import torch
from torch.profiler import profile

from helpers.own_script import toy

model, _, _, loader, device, _ = toy()  # at home: your own model, and below the loop that generates with it
x = next(iter(loader))[0].to(device)

with torch.no_grad(), profile() as seen:
    for _ in range(4):
        answer = model(x).argmax(-1)[-1].item()  # "the next token"
        x = torch.cat([x, x[-1:] + answer])  # one row more
for name in ("aten::_local_scalar_dense", "aten::cat", "aten::linear"):
    print(name, sum(event.name == name for event in seen.events()), "times for 4 tokens")
weights = sum(p.nbytes for p in model.parameters())
print(f"one pass reads {weights:,} bytes of weights")

# %% [markdown]
# Four tokens: four questions, four copies of the input, which grows and goes through the model again as a whole, and two layers in each pass. What to look at first, and what
# to try first:
#
# - `aten::cat`: look at what grows (`profile(record_shapes=True)`, then `event.input_shapes`). The model's whole input, and each pass works on all of it: there is no cache. Keys and values in each
#   layer: the cache grows; Hugging Face's `generate` takes `cache_implementation="static"`. Small ones do no harm: a token put behind the others, or rotary positions.
# - Gaps between kernels (`seen.export_chrome_trace("trace.json")` shows them, lesson 03): the CPU is the limit. Fix the shapes, then `torch.compile(step, mode="reduce-overhead")`. The cache
#   has to be buffers of the module (`register_buffer`), or PyTorch may say *skipping cudagraphs due to mutated inputs*, and record nothing.
# - No gaps, and kernels of a few µs each: too many small kernels. Compile.
# - No gaps, and long kernels: bytes are the limit. A larger batch, or fewer bits a weight.
# - Many `aten::_local_scalar_dense` (or `cudaStreamSynchronize`): tokens are asked for one by one. Ask every few steps. This gains little. (But no question may stand inside a step that becomes a graph.)
#
# Divide your card's bandwidth by the bytes of the weights: more passes a second than that are impossible (unless they
# fit into the card's L2 cache).
#
# ## Sources on trial

# %% experiment
from helpers.lessons.generating import claims

lesson.verdicts(
    claims.on_trial(),
    evidence="simulated (A100) · live (CPU) · arithmetic",
    shown=("20-bandwidth", "20-static-cache"),  # the others belong to *Further*
)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | One sequence: a token takes one and a half times to twice as long as reading the weights. | Small models: launches, or the least time of a kernel, make it many times as long. |
# | More sequences in a batch cost little, if the weights are what is read. | When their caches are as many bytes as the weights. |
# | A static cache copies only what is new, and has one shape. | Long room, short texts: it reads empty places too. Launched one by one, a small model gains nothing. |
# | Make a token one graph: one launch. | Large models on a quick CPU: their kernels take longer than the launches. |
# | Do not ask for each token: a few percent. | Where a token is long: a wait costs a fixed time. |
# | Let the next request in when one ends. | Requests of equal length gain nothing. |
#
# **Read on**: Team PyTorch, [GPT, Fast](https://pytorch.org/blog/accelerating-generative-ai-2/) (2023), and [its
# code](https://github.com/pytorch-labs/gpt-fast); Y. Leviathan and others, [Fast inference from transformers via speculative
# decoding](https://arxiv.org/abs/2211.17192) (2022); PyTorch on
# [torch.export](https://docs.pytorch.org/docs/stable/export.html) and
# [AOTInductor](https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html).

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone.

# %% [markdown]
# ### A scheduler (14 min)
#
# Who may take a slot that is free?
#
# What limits the number of sequences is **memory**: each one needs places in the cache. Beside its weights a card of 80 GB has room for
# about {{caches_fit:.0f}} caches of 1,024 places of the 7B model. With the cache of 20.1 each slot owns its places, and slots are all there is to hand out. Servers hand out
# *places*, from one pool for all sequences (*A cache in blocks*, in *Further*). A careful server lets a request in only if
# all places that it may ever need are free. vLLM is bolder. It lets in more, and when the cache is full, it stops a request and computes
# its keys and values again later ([preemption](https://docs.vllm.ai/en/stable/configuration/optimization/)). You write the careful one.

# %% [markdown]
# **Exercise 20.3 — a scheduler** (★, 9 min)
#
# Decide before each step who takes part. Nobody knows how long an answer gets: a request says how many tokens it makes *at
# most*, and that room is kept for it until it ends.
#
# <details><summary>Hint 1</summary>Two collections: who waits, in the order of arrival; who runs, and how many places each one holds.</details>
#
# <details><summary>Hint 2</summary>If the first who waits does not fit, nobody behind may go in: else a large
# request could wait for ever.</details>
#
# <details><summary>The idea</summary>In <code>next()</code>: while somebody waits, a slot is free, and the first one's places fit beside
# the others', move the first one over. Return all who run.</details>


# %% exercise="scheduler"
class Scheduler:
    """Who takes part in the next step: first come, first served.

    Scheduler(slots, places): at most `slots` sequences at once, which hold at most `places` places of the cache together.

    arrive(name, prompt, most): a request waits from now on. No name comes twice. While the request runs, it holds
    prompt + most places. ValueError if it could never fit; then nothing has changed.
    next() → a new list: the names of all who take part in the next step, in the order in which they came. They are those
    who run, and those who are let in now. Let in whoever is first, while a slot is free and there are places enough for the
    first one; perhaps several in one step. Nobody goes in before one who came earlier. [] if there is nobody.
    ended(name): a request that ran takes part no more. Its slot and places are free for the next step.

    Graded on who takes part in each step: not too many sequences, not too many places, and nobody waits without need.
    """

    def __init__(self, slots: int, places: int):
        ### BEGIN SOLUTION
        self.slots, self.places = slots, places
        self.waiting: dict[str, int] = {}
        self.running: dict[str, int] = {}
        ### END SOLUTION

    def arrive(self, name: str, prompt: int, most: int) -> None:
        ### BEGIN SOLUTION
        if prompt + most > self.places:
            raise ValueError(f"{name} needs {prompt + most} places, and there are {self.places}")
        self.waiting[name] = prompt + most
        ### END SOLUTION

    def next(self) -> list[str]:
        ### BEGIN SOLUTION
        for name, need in list(self.waiting.items()):
            if len(self.running) == self.slots or sum(self.running.values()) + need > self.places:
                break
            self.running[name] = self.waiting.pop(name)
        return list(self.running)
        ### END SOLUTION

    def ended(self, name: str) -> None:
        ### BEGIN SOLUTION
        del self.running[name]
        ### END SOLUTION


# %% test="scheduler" points=1
from helpers.lessons.generating.exercises import Requests, check_Scheduler

# each request: before which step it comes, its prompt, the most it makes, what it makes
check_Scheduler(
    Requests(((0, 2, 3, 3), (0, 2, 3, 1), (0, 2, 2, 2), (1, 1, 1, 1)), slots=2, places=10),
    # the second is large, and a small one stands behind it
    Requests(((0, 5, 5, 2), (0, 4, 6, 3), (1, 1, 1, 1)), slots=3, places=12),
)

# %% hidden="scheduler" points=3
### BEGIN HIDDEN TESTS
from helpers import check
from helpers.lessons.generating.exercises import Requests, check_refused, check_Scheduler, random_requests

check_Scheduler(
    *(random_requests(seed, n, slots, places, apart) for seed, n, slots, places, apart in (
        (1, 12, 4, 24, 1), (2, 20, 3, 30, 0), (3, 30, 8, 40, 2), (4, 9, 1, 12, 3), (5, 25, 5, 60, 6)
    )),
    Requests(((3, 1, 1, 1),), slots=1, places=2),
    Requests(((0, 1, 2, 2), (0, 1, 2, 2), (0, 1, 2, 1), (0, 1, 2, 2)), slots=3, places=9),
)  # fmt: skip
check_refused(check.case(2, 10, 5, 6), check.case(2, 10, 5, 5), check.case(1, 3, 3, 1))
### END HIDDEN TESTS

# %% [markdown]
# ### Guess, then check (30 min)
#
# 64 tokens at once take hardly longer than one. Could we *check* several tokens at once? A small model, the **draft**, guesses k
# tokens, one after the other. (GPT-2's token, above, takes less than a tenth of the 7B model's.) The large model looks at all of them in one pass, which gives its shares (probabilities) for each of the k + 1 places.
# Guesses are kept as long as they pass, and at the first one that does not, the large model's own token comes in.
#
# When does a guess pass, so that the text is *exactly* as the large model alone would write it? Let p be the large model's
# share of the guessed token, and q the small one's. The guess is kept with probability **min(1, p/q)**. If it is
# rejected, a token is drawn from
# what the small model gives too little of: the positive part of p − q, over all tokens. Whatever passes and whatever
# is drawn anew add up to p, for each token (Leviathan and others, section 2.3).
#
# How many tokens does a round give? Say that each guess passes with probability a. Then the first i guesses all pass with probability
# a to the power of i. One token more comes in any case:

# %% experiment
for a in (0.6, 0.8, 0.9):
    rounds = ", ".join(f"{sum(a**i for i in range(k + 1)):.1f}" for k in range(1, 9))
    print(f"a = {a}, k = 1 to 8: {rounds} tokens a round")

# %% [markdown]
# More guesses help while most of them pass. The draft's k calls are paid for in any case. Say that a call of the draft takes a tenth of
# the large model's pass. Then a round takes 1 + k/10 passes, and the best k is where tokens a pass are most:

# %% experiment
for a in (0.6, 0.8, 0.9):
    a_pass = {k: sum(a**i for i in range(k + 1)) / (1 + k / 10) for k in range(1, 17)}
    best = max(a_pass, key=lambda k: a_pass[k])
    print(f"a = {a}: k = {best} is best, {a_pass[best]:.2f} tokens in the time of one pass")

# %% [markdown]
#
# **Exercise 20.4 — speculative sampling** (★★★, 20 min)
#
# Write one round. All chance comes from two functions that you are given. So the test can go through **every** way to draw and add
# up the shares exactly: luck plays no part.
#
# <details><summary>Hint 1</summary>A guess is <em>drawn</em> from the draft's shares; it is not the likeliest token. Keep the shares
# that it was drawn from.</details>
#
# <details><summary>Hint 2</summary>What comes behind a rejected guess was guessed after a token that is not there. And if all guesses are
# kept, the large model has already said what comes next.</details>
#
# <details><summary>The idea</summary>k times <code>pick(draft(…))</code>; one call of target. For each guess
# <code>coin(min(1, p/q))</code>; at the first False return what was kept and
# <code>pick([max(0, a - b) …])</code>. At the end <code>pick(large[k])</code> as one token more.</details>


# %% exercise="speculate"
def speculate(target, draft, prefix: list[int], k: int, coin, pick) -> list[int]:
    """1 to k + 1 tokens after `prefix`, distributed as the large model alone would make them.

    draft(tokens) → the small model's shares (probabilities) of the next token, a list. target(prefix, drafted) → the large model's
    shares, len(drafted) + 1 lists: of the token after prefix, after prefix + drafted[:1], …, after all. A share may be 0.
    coin(p) → True with probability p. pick(weights) → i with probability weights[i] / sum(weights): none of them negative, not all 0.
    No other chance. k: 1 or more.

    `prefix` stays as it is. Shares may be fractions: do not turn them into floats.

    Budget: target is called once, draft k times; and as many tokens on average as this rule gives.
    """
    ### BEGIN SOLUTION
    drafted, small = list[int](), list[list[float]]()
    for _ in range(k):
        small.append(draft(prefix + drafted))
        drafted.append(pick(small[-1]))
    large = target(prefix, drafted)
    for i, token in enumerate(drafted):
        p, q = large[i], small[i]
        if not coin(min(1, p[token] / q[token])):
            return [*drafted[:i], pick([max(0, a - b) for a, b in zip(p, q, strict=True)])]
    return [*drafted, pick(large[k])]
    ### END SOLUTION


# %% test="speculate" points=1
from helpers.lessons.generating.exercises import Pair, check_speculate

check_speculate(Pair(words=3, k=1), Pair(words=2, k=2, seed=1))

# %% hidden="speculate" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.generating.exercises import Pair, check_speculate

check_speculate(
    Pair(2, 2, seed=3, alike=True),
    Pair(3, 2, seed=2, zeros=True),
    Pair(3, 1, seed=4, sure=True),
    Pair(4, 2, seed=5, prefix=(1, 0, 2)),
    Pair(2, 3, seed=6, prefix=()),
)
### END HIDDEN TESTS

# %% [markdown]
# ### Places of their own (3 min)
#
# With continuous batching each slot stands at another place. So `places` gets a number a row, (batch, 1). The mask gets one too, and hides
# what the slot's last request has left: `torch.arange(length, device=places.device) <= places[:, None, :, None]`. In `StaticCache`,
# `index_copy_` writes the same places in every row. In its place stands an assignment through two indices, a row and a place:

# %% experiment
keys, new = (
    torch.zeros(3, 2, 5, 4),
    torch.ones(3, 2, 1, 4),
)  # (batch, heads, length, features), and a new token a row
places = torch.tensor([[4], [0], [2]])
rows = torch.arange(len(keys))[:, None]
keys[rows, :, places] = new.transpose(1, 2)
print(keys[:, 0, :, 0])  # where each row has written

# %% [markdown]
# ### A cache in blocks (10 min)
#
# Nobody knows how long an answer gets. A static cache takes room for the longest one. **PagedAttention**
# ([W. Kwon and others, 2023](https://arxiv.org/abs/2309.06180)) hands out the cache in blocks of, say, 16 places, when they are
# needed. The blocks of a sequence may lie anywhere. A **block table** says where: its first number is the block with the first 16
# places, and so on.
#
# 64 sequences grow from 1 token to their whole length, at most 1,024: many stay short, few get long. Over all their steps, what share of
# the reserved places holds a token?

# %% experiment
texts = batching.lengths(64, mean=170)
print(f"{sum(texts) / len(texts):.0f} tokens on average, {max(texts)} in the longest")
you = lesson.predict(
    {"room for 1,024 places": ..., "blocks of 16": ...},
    choices=["about 15 %", "about 35 %", "about 75 %", "about 95 %"],
)

# %% experiment
reserved = {
    "room for 1,024 places": batching.reserved(texts, 1024, 1024),
    "blocks of 16": batching.reserved(texts, 16, 1024),
}
used = batching.reserved(texts, 1, 1024)
you.against(
    {name: experiments.about(used / places, (0.15, 0.35, 0.75, 0.95)) for name, places in reserved.items()},
    experiments.rooms(used, reserved, steps=sum(texts)),
    evidence="arithmetic",
)

# %% [markdown]
# In blocks only the last one of a sequence is not full. So the same memory holds several times as many sequences, and a larger batch
# shares the reading of the weights. The price: attention has to follow the table. Here with ordinary operators, which copy; a
# kernel for it looks up each block's address (lesson 21 shows how a kernel computes addresses):

# %% experiment
BLOCK, n = 16, 40
k, v, q = torch.randn(4, n, 8), torch.randn(4, n, 8), torch.randn(4, 1, 8)  # heads, places, features
pool = torch.zeros(2, 64, 4, BLOCK, 8)  # keys and values of 64 blocks, for all sequences together
table = torch.tensor([41, 7, 23])  # three of them are this sequence's
places = torch.arange(n)
for kept, new in zip(pool, (k, v), strict=True):
    kept[table[places // BLOCK], :, places % BLOCK] = new.transpose(0, 1)
keys, values = (kept[table].transpose(0, 1).flatten(1, 2)[:, :n] for kept in pool)
print(
    "the same:",
    torch.equal(F.scaled_dot_product_attention(q, keys, values), F.scaled_dot_product_attention(q, k, v)),
)

# %% [markdown]
# ### Sampling without a wait (5 min)
#
# A token need not be the likeliest one: it can be drawn by its share. That is done on the card, too: `torch.multinomial`, or `argmax(shares / noise)` with exponential
# noise. `noise / share` is a waiting time whose rate is the share: token i's is the shortest with probability share i, and there `share / noise` is largest. Does `torch.multinomial` ask for a number? The profiler knows which operators run inside.

# %% experiment
from torch.profiler import profile

shares = torch.rand(1, 100).softmax(-1)
with profile() as seen:
    torch.multinomial(shares, 1)
asking = [event for event in seen.events() if event.name == "aten::_local_scalar_dense"]
experiments.who_asks(asking)

# %% [markdown]
# It asks only inside `_assert_async`. On a CPU that reads a number; on a CUDA GPU it is a
# [kernel](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda/TensorCompare.cu), and nobody waits. Older code
# and older advice go around `torch.multinomial` for its wait.

# %% [markdown]
# ### A model that leaves Python (15 min)
#
# [`torch.export`](https://docs.pytorch.org/docs/stable/export.html) captures a model as one graph, for shapes that you name.
# [AOTInductor](https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html) compiles this graph ahead of time into a
# package. A process loads the package, and needs neither the model's source nor a compiler. What of the decoding step survives?

# %% experiment
step_model = experiments.Step()
example = (torch.tensor([[1]]), torch.tensor([0]))
with torch.no_grad():
    program = torch.export.export(step_model, example)
experiments.exported(step_model, program)

# %% [markdown]
# One graph without guards, and the cache is in it: a buffer that the graph writes in place. What is lost: Python. A
# Python `if` on a value, another shape than those named, a hook set later: none of this is possible any more. (What a hook did
# at export is in the graph.) The next cell compiles the package,
# once, and the cell after it loads the package in a new process. Compiling needs a C++ compiler, and takes up to a minute.


# %% experiment tags=["nbval-ignore-output"]
def compile_ahead(program, path):
    with torch.no_grad():
        return torch._inductor.aoti_compile_and_package(program, package_path=path)


experiments.compiled(compile_ahead, program)

# %% experiment tags=["nbval-ignore-output"]
experiments.loaded(program, step_model)

# %% [markdown]
# ### Fewer bits (10 min)
#
# If the bytes of the weights are the limit, fewer bits a weight are fewer bytes (lesson 13). How near did others come to what the bytes
# allow?

# %% experiment
gpt_fast = {"bf16": 107.0, "int8, a scale a row": 157.4, "int4, a scale and a zero for each 32": 202.1}
lesson.keep(reached=gpt_fast["bf16"] * experiments.reading_s("7B", "A100"))
experiments.fewer_bits(gpt_fast)

# %% [markdown]
# (In bf16 that is {{reached:.0%}} of the limit. The source says 72 %: it counts with its own bytes and bandwidth.)
#
# The less there is to read, the further from the limit: kernels have their least time, attention and its cache stay in bf16, and
# weights have to be turned back into bf16. That must happen inside the matrix product's kernel: a kernel of its own would write all
# weights out in bf16, and read them once more. With 8 bits `torch.compile` puts it there. With 4 bits gpt-fast calls an operator that was
# written for it, `torch.ops.aten._weight_int4pack_mm`.
