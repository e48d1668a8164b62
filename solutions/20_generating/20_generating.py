# %% [markdown]
# # 20 · Generating
#
# ## Why does one token take so long?
#
# A model with {{billions:.1f}} billion weights needs two operations a weight for a token. An H100 can do these {{operations:.0f}} billion operations in
# {{least_ms:.3f}} ms. The token takes {{token_7b:.1f}} ms (simulated): **about {{too_long:.0f}} times as long**. GPT-2 has {{smaller:.0f}} times fewer
# weights. Is its token {{smaller:.0f}} times as fast? You find out what a token waits for, and write what makes generating fast.
#
# **Time** 75 min, two exercises among them; *Further*: 90 min, with a scheduler, speculative sampling, a cache in blocks, and a model that
# leaves Python. **Before this** lessons 02 and 03 (operators, waits) and 11 (`torch.compile`); 07 (CUDA graphs) is of use.
#
# **Afterwards you can**
# - say what limits a token: launches, kernels that are too small, bytes or arithmetic;
# - write a cache of keys and values, and its mask;
# - run a decoding loop as a CUDA graph, without waits, and say how to keep its batch full.

# %% setup
import torch
from torch.nn import functional as F

from helpers import count, lesson, simulate
from helpers.lessons.generating import batching, experiments, on_card
from helpers.lessons.generating.stepping import Decoder

torch.set_num_threads(1)
lesson.start(
    "20_generating",
    evidence=["simulated (H100)", "recorded (H100)", "simulated (A100)", "arithmetic", "live (CPU)"],
)

# %% [markdown]
# ## 1 · One token
#
# Tokens are made one after the other, each in a **step**. GPT-2, with 124 million weights, and a model with nearly as many weights as Llama-2 7B run on a simulated H100, in
# bfloat16. 1,023 tokens came before. What a step has to know of them lies in the **cache** (section 2). Its kernels are launched together, as a CUDA graph (lesson 07).
#
# ```
# a kernel takes the longest of:  the least time of any kernel · its bytes ÷ bandwidth · its operations ÷ operations a second
# a step takes the longer of:     all its kernels · all their launches
# ```
#
# The least time is {{floor_us:.0f}} µs here. What makes each model's step long? The 7B model makes {{rate_7b:.0f}} tokens a second. If 64 *known* tokens of a text
# go through it at once, as those of a prompt do: how many does it process a second?

# %% experiment
LIMITS = ["arithmetic", "bytes of the weights", "kernels that are too small"]
you = lesson.predict(
    {"7B, a step": ..., "GPT-2, a step": ..., "7B, 64 at once: tokens a second": ...},
    choices={
        "7B, a step": LIMITS,
        "GPT-2, a step": LIMITS,
        "7B, 64 at once: tokens a second": [150, 600, 2500, 9000],
    },
)

# %% experiment
costs = {(name, n): on_card.cost(name, tokens=n, graph=True) for name in ("GPT-2", "7B") for n in (1, 64)}
eager = {name: on_card.cost(name) for name in ("GPT-2", "7B")}
you.against(
    experiments.limits(costs),
    experiments.one_token(costs, eager),
    evidence="simulated (H100)",
)

# %% experiment tags=["fold"]
riddle, reading = experiments.riddle(costs), 1e3 * experiments.reading_s("7B")
lesson.keep(billions=on_card.weights("7B") / 2e9, operations=riddle.operations / 1e9)
lesson.keep(least_ms=1e3 * riddle.least_s, too_long=round(riddle.too_long, -2), floor_7b=reading)
lesson.keep(token_7b=1e3 * costs["7B", 1].seconds, rate_7b=riddle.rate, smaller=riddle.smaller)
lesson.keep(sooner=riddle.sooner, gpt2_launches=eager["GPT-2"].launches, floor_us=experiments.least_us())
lesson.keep(a_launch=1e6 * eager["GPT-2"].seconds / eager["GPT-2"].launches, balance=experiments.balance())
large = experiments.recorded_large()
lesson.keep(seen_at_once=large["at_once"], seen_sooner=large["sooner"])
lesson.keep(seen_without=large["none_ms"], seen_static=large["static_ms"], seen_7b=large["graph_ms"])
lesson.keep(worst_read=1e3 * costs["7B", 1].seconds / reading)
lesson.keep(best_read=1 / experiments.PUBLISHED["bf16"] / experiments.reading_s("7B", "A100"))
lesson.keep(gib_7b=on_card.weights("7B") / 2**30, cache_7b=on_card.cache_bytes("7B", 1024) / 2**20)

# %% [markdown]
# **The 7B model** reads nearly all weights for a token. That takes {{floor_7b:.1f}} ms at the bandwidth on paper; the step takes {{token_7b:.1f}} ms. It reads the cache too
# ({{cache_7b:.0f}} MiB), small kernels take the least time, and no kernel reaches the bandwidth. 64 tokens share one reading, so they take hardly longer
# (recorded: {{seen_at_once:.0%}} longer).
#
# **GPT-2's** step is only {{sooner:.0f}} times as fast (recorded: {{seen_sooner:.0f}}). Most of its {{gpt2_launches}} kernels take the least time. All others but the head's product are too small to come near
# the bandwidth.
#
# So a step has **four limits**:
#
# 1. launches: {{a_launch:.0f}} µs of the CPU each (simulated). A graph removes them.
# 2. the least time of each kernel. Fewer kernels help (lesson 11).
# 3. bytes. Fewer bits a weight help.
# 4. arithmetic. n tokens use a weight of 2 bytes in 2n operations: n operations a byte. An H100 can do {{balance:.0f}} (989 TFLOP/s ÷ 3.35 TB/s).
#    **Prefill** (all tokens of a prompt at once) gets there with about {{balance:.0f}} tokens.
#
# A **batch** of sequences shares launches, least times and the bytes of the weights. Each sequence's cache is its own: those of 24, with 1,024 tokens each, are nearly as large
# as the weights ({{gib_7b:.1f}} GiB). How many times as many tokens a second do 24 sequences make as one?

# %% experiment
you = lesson.predict({"24 sequences: times as many tokens a second": ...}, choices=[2, 6, 14, 24])

# %% experiment
by_batch = {n: on_card.cost("7B", batch=n, graph=True) for n in (1, 8, 24, 64)}
times = by_batch[24].seconds / by_batch[1].seconds
you.against_ratios(
    {"24 sequences: times as many tokens a second": 24 / times},
    experiments.by_sequences(by_batch),
    evidence="simulated (H100)",
    what="times",
    shown="{:.1f}",
)

# %% experiment tags=["fold"]
a_cache = on_card.cache_bytes("7B", 1024)
lesson.keep(batch_times_7b=times, caches_fit=(80e9 - on_card.weights("7B")) / a_cache)

# %% [markdown]
# The step takes only {{batch_times_7b:.1f}} times as long.
#
# ## 2 · What to keep
#
# A new token looks at the *keys* and *values* of all tokens before it. They do not change any more, because no token looks at a later one. Three ways to have them:
#
# - **No cache**: all tokens go through the model again for each new one.
# - **A growing cache**: `torch.cat` makes longer keys and values for each token.
# - **A static cache**: room for all places is taken once. New keys and values are written in place. A mask, the same in all layers, hides what a token may not look at.
#
# In each layer a cache is one line before
# [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html) (SDPA):
#
# ```python
# keys, values = cache.add(layer, places, k, v)  # in: those of the new tokens; out: those of all places
# y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
# ```
#
# GPT-2 makes its 1,024th token in an **eager** step (simulated): Python launches one kernel after the other. How many times as fast does a static cache make it, with one
# sequence, and with 64?

# %% experiment
you = lesson.predict({"1 sequence": ..., "64 sequences": ...}, choices=["0.8 ×", "3 ×", "16 ×", "100 ×"])

# %% experiment
WAYS = ("no cache", "growing", "static")
by_way = {(way, batch): on_card.cost(batch=batch, way=way) for way in WAYS for batch in (1, 64)}
as_graph = {batch: on_card.cost(batch=batch, graph=True) for batch in (1, 64)}
you.against(
    experiments.gains_of_a_cache(by_way),
    experiments.ways(by_way, as_graph),
    evidence="simulated (H100)",
)

# %% experiment tags=["fold"]
launches = {way: by_way[way, 1].launches for way in WAYS}
lesson.keep(
    cat_gib=by_way["growing", 64].cat_bytes / 2**30, cache_mib=on_card.cache_bytes("GPT-2", 1024) / 2**20
)
lesson.keep(masking=launches["static"] - launches["growing"] - 2)
lesson.keep(without_7b=1e3 * on_card.cost("7B", way="no cache").seconds)
quick_us, slow_us = experiments.recorded_launches()
seen_gains = experiments.recorded_by_cache()
lesson.keep(quick_us=quick_us, slow_us=slow_us, seen_graph_1=seen_gains["graph_us", 1])
lesson.keep(seen_cache_1=seen_gains["us", 1], seen_cache_64=seen_gains["us", 64])

# %% [markdown]
# - **One sequence.** GPT-2 loses (recorded: {{seen_cache_1:.1f}} ×): launches are the limit, and without a cache there are fewer. The 7B model's {{without_7b:.0f}} ms become
#   {{token_7b:.0f}} ms (simulated; recorded: {{seen_without:.0f}} become {{seen_static:.0f}}, as a graph {{seen_7b:.0f}}).
# - **64 sequences.** Without a cache all is computed again (recorded: {{seen_cache_64:.1f}} ×). The growing cache reads and writes {{cat_gib:.1f}} GiB for one more place.
# - **Launches.** {{masking}} of the static cache's turn its mask of bools into the numbers that SDPA adds to the scores, anew in each layer.
# - **Recorded.** The CPU's pace changed: one `x + y`, timed beside each row, took {{quick_us:.0f}} to {{slow_us:.0f}} µs. So ratios of recorded eager steps are rough: trust the graph's times.
#
# A CUDA graph has one shape, and finds its data at the same addresses each time. With a static cache one graph is replayed for all tokens, and wins in both halves of the table: **this is what
# the static cache is for.** (`torch.compile` can make one code for all shapes of a growing cache, but a CUDA graph is recorded anew for each.)
#
# Its price: room for all places from the beginning, {{cache_mib:.0f}} MiB a sequence here; attention that reads empty places; and a mask, with which SDPA on a card cannot take its
# [FlashAttention kernel](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/sdp_utils_cpp.h).

# %% [markdown]
# **Exercise 20.1 — a static cache and its mask** (★★, 11 min)
#
# Write the cache of a whole model, and make its mask once a step. The test compares a small GPT-2's logits with those of the model without a cache. Then it looks on the simulated H100 what `add` moves,
# and what SDPA launches with your mask. (On a real card take a length that 16 divides: else SDPA may copy the mask in each layer, to
# [align its rows](https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/attention.cpp).)
#
# <details><summary>Hint 1</summary><code>places</code> is a tensor on the device. Which operators write at the places that such a
# tensor names? (<code>places[0].item()</code> would wait.)</details>
#
# <details><summary>Hint 2</summary>SDPA takes two kinds of masks: see <code>attn_mask</code> in its documentation. Which of them leaves no work to the layers? And a hidden place's score gets −∞ added,
# and its value counts 0 times: what do both give with what <code>torch.empty</code> may hold?</details>
#
# <details><summary>The idea</summary>Whether a new token may look at a place follows from two numbers: where the token stands, and where the place is. Compare them for all pairs. Then put the answers into
# numbers: what can be added to a score so that nothing changes, and what so that its share becomes 0?</details>


# %% exercise="static_cache"
class StaticCache:
    """Keys and values of all layers, in memory that is taken once, and the mask of a step.

    StaticCache(layers, batch, heads, length, features, dtype=torch.float32, device="cpu"): in each layer room for `length`
    places, with `features` numbers a head for a key and as many for a value.

    mask(places) → (n, length): called once a step, before the layers, which hand it to SDPA as attn_mask. Each new token may look
    at its own place and at all places before it.
    add(layer, places, k, v) → (keys, values): writes n new tokens of a layer, returns all its places.
    places: (n,), int64, on the device: where the new tokens stand. In any order, none twice. A later step may go back and
    write a place again. Its tensor may be an earlier one, with other numbers.
    k, v: (batch, heads, n, features), of the cache's dtype, as are the queries. The caller may write over them afterwards.
    keys, values: (batch, heads, length, features), in each call at the same address.

    The test calls it under torch.no_grad().

    Budget: 0 waits; in add() 0 new storages. On the simulated GPU SDPA launches one kernel in each layer, and an add() moves at
    most 1.25 times the bytes of: k and v read once, places read twice, the n new keys and values written once.
    """

    def __init__(self, layers, batch, heads, length, features, dtype=torch.float32, device="cpu"):
        ### BEGIN SOLUTION
        self.keys = torch.zeros(layers, batch, heads, length, features, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        ### END SOLUTION

    def mask(self, places: torch.Tensor) -> torch.Tensor:
        ### BEGIN SOLUTION
        hidden = torch.arange(self.keys.shape[3], device=places.device) > places[:, None]
        return torch.zeros_like(hidden, dtype=self.keys.dtype).masked_fill_(hidden, float("-inf"))
        ### END SOLUTION

    def add(self, layer: int, places: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
        ### BEGIN SOLUTION
        self.keys[layer].index_copy_(2, places, k)
        self.values[layer].index_copy_(2, places, v)
        return self.keys[layer], self.values[layer]
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
# `token` and `place` are tensors on the card, and `step()` makes logits of what is in them. Here are two loops around it:


# %% experiment
def asks(step, token, place, n):
    said = []
    for _ in range(n):
        said.append(int(step().argmax()))  # waits until the token is known
        token.copy_(torch.tensor([said[-1:]]))  # sends it back, and waits for the copy
        place += 1
    return said


def stays(step, token, place, n):
    said = []
    for _ in range(n):
        token.copy_(step().argmax(-1, keepdim=True))
        place += 1
        said.append(token.clone())
    return said


# %% [markdown]
# Each makes 8 tokens of GPT-2 on the simulated H100, with eager steps, and with steps that are one CUDA graph. How many ms does asking add to each token?

# %% experiment
WAITS = ["0.05 ms", "0.5 ms", "5 ms"]
you = lesson.predict({"asking, eager": ..., "asking, graph": ...}, choices=WAITS)

# %% experiment
with simulate("H100") as gpu, torch.no_grad():  # torch.cuda has the same names
    token = torch.zeros(1, 1, dtype=torch.int64, device=gpu.device)
    place = torch.zeros(1, dtype=torch.int64, device=gpu.device)
    model = Decoder(gpu.device)  # GPT-2 with a static cache; its mask is made once a step, as in 20.1
    model(token, place)  # a warm-up
    graph = gpu.CUDAGraph()
    with gpu.graph(graph):  # nothing runs: kernels are recorded, with the addresses of all tensors
        logits = model(token, place)

    def replayed():
        graph.replay()  # all kernels, by one launch
        return logits  # the same tensor, with new numbers

    steps = {"eager": lambda: model(token, place), "graph": replayed}
    loops = {
        f"{loop.__name__}, {how}": experiments.loop_cost(gpu, loop, step, token, place)
        for how, step in steps.items()
        for loop in (asks, stays)
    }
said, wait_s, graph_gain = experiments.asking(loops)
you.against(said, experiments.loops(loops), evidence="simulated (H100) · arithmetic")

# %% experiment tags=["fold"]
lesson.keep(graph_gain=graph_gain, mask_share=experiments.gain_of_the_mask())
lesson.keep(wait_long=wait_s["eager"] / loops["stays, eager"].seconds)
lesson.keep(wait_short=wait_s["graph"] / loops["stays, graph"].seconds)
gains = experiments.recorded_gains()
lesson.keep(real_one=gains["GPT-2", 1], real_64=gains["GPT-2", 64], real_7b=gains["7B", 1])
seen_us, _ = experiments.recorded_asking()
never_us = seen_us["graph", 0]
lesson.keep(
    ask_us=seen_us["graph", 1] - never_us, ask_16_us=seen_us["graph", 16] - never_us, never_us=never_us
)
lesson.keep(
    ask_share=seen_us["graph", 1] / never_us - 1, step_launches=on_card.cost(way=on_card.ONCE).launches
)

# %% [markdown]
# Asking adds {{wait_long:.0%}} to an eager token, and {{wait_short:.0%}} to a graph's (simulated). The next token needs this one, so only the way to the CPU and back is lost:
# after a wait the card has nothing to do until the CPU has launched the copy, `place += 1` and the replay. Recorded, reading the token adds {{ask_us:.0f}} µs to a graph's {{never_us:.0f}} ({{ask_share:.0%}}), and
# {{ask_16_us:.0f}} µs if it is read after every 16 steps. **The famous advice, no `.item()` in the loop, buys a few percent.** But a server does more between two steps: in vLLM scheduling took
# [29% of the time](https://blog.vllm.ai/2024/09/05/perf-update.html) (2024, before a rewrite; Llama 3 8B, one H100).
#
# **The graph makes GPT-2's token {{graph_gain:.1f}} times as fast** (simulated). On the recorded H100, with a slower CPU, a step gets roughly {{real_one:.0f}} times as fast
# (64 sequences: {{real_64:.0f}}), and one of the 7B model {{real_7b:.1f}} times. The mask, made once a step, leaves {{step_launches}} of {{gpt2_launches}} launches (the loop adds 4). Made
# in each layer, it makes the graph's step {{mask_share:.0%}} longer.
#
# A graph also needs places in a tensor on the card. `argmax`, the copy into `token` and `place += 1` may go in as well. Then 2 of the 5 launches are left: the
# replay and `clone`.
#
# When is the text at its end? Somebody has to ask: once every few steps. A row that has ended runs on until then, because the graph's shape pays for it.
# What it makes is replaced by the token *end*.

# %% [markdown]
# **Exercise 20.2 — a loop that hardly ever asks** (★★, 11 min)
#
# Write the loop for a batch of texts, a row each. It always takes the likeliest token. Rows end at different steps, and the loop stops
# early when all have ended.
#
# <details><summary>Hint 1</summary>Everything that changes from step to step is a tensor on the card: the tokens, the place,
# and which rows have ended.</details>
#
# <details><summary>Hint 2</summary><code>torch.where</code> chooses between two numbers without a question. <code>torch.full</code> makes the first place without a
# copy from the host.</details>
#
# <details><summary>The idea</summary>Keep a column of bools on the card: who has ended. It decides what a row makes, and changes with what the row has made. One number of it goes to
# the CPU, and only when it is time to ask.</details>


# %% exercise="generate"
def generate(step, tokens: torch.Tensor, place: int, most: int, end: int, every: int) -> torch.Tensor:
    """The tokens that follow, in each step the likeliest one: (batch, made), int64, on the device of `tokens`.

    step(tokens, places) → logits (batch, words): a recorded graph. Unlike step() above, it copies its inputs into the graph's own
    tensors: tokens (batch, 1) and places (1,), int64, on the device. It writes the cache at that place. The next call writes over
    its logits.
    tokens: (batch, 1), int64: the last token of each prompt. They stay as they are; tensors of your own you may write over. An
    `end` among them ends nothing: only tokens that are made here count.
    place: a number, where these last tokens stand. most, every: 1 or more.

    A row that has made `end` makes `end` from then on, and step() is given `end` for it. After `every`, 2 · `every`, …
    steps, and not in between, the loop looks whether all rows have ended, and stops if so. It stops after `most` steps in any case.
    made: the number of steps.

    Budget: no more steps than these, and at most one wait each time it looks. Before the first step at most 2 waits and 2 copies
    from the host.
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
# Your two answers together: GPT-2 with your cache as one graph, in your loop. It makes 16 tokens for eight texts, and asks every 8 steps.

# %% experiment
experiments.together(StaticCache, generate)

# %% [markdown]
# ## 4 · Many requests
#
# Requests end at different steps.
#
# - **Static batching**: a batch is filled, runs until its last request has ended, and then the next one is filled.
# - **Continuous batching**: whenever a request ends, the next one takes its slot.
#
# 64 requests wait for 8 slots. A request makes {{request_mean:.0f}} tokens on average, the longest {{request_most}}. In each step each slot could make one
# token. What share of all these tokens is really made?

# %% experiment
tokens = batching.lengths(64)
print("the first eight:", *tokens[:8])
you = lesson.predict(
    {"static": ..., "continuous": ...}, choices=["about 20 %", "about 40 %", "about 60 %", "about 80 %"]
)

# %% experiment
eight = on_card.cost(batch=8, way=on_card.ONCE, graph=True)
runs = {policy: batching.batched(tokens, 8, policy) for policy in batching.POLICIES}
you.against(
    {name: f"about {20 * round(5 * run.used)} %" for name, run in runs.items()},
    experiments.batches(runs, eight.seconds),
    *(batching.batching_explorer(policy, slots=4, requests=16).static() for policy in batching.POLICIES),
    evidence="arithmetic",
)

# %% experiment tags=["fold"]
lesson.keep(request_mean=sum(tokens) / len(tokens), request_most=max(tokens))
lesson.keep(batching_gain=runs["static"].steps / runs["continuous"].steps)
lesson.keep(mean_static=runs["static"].mean_end, mean_continuous=runs["continuous"].mean_end)
lesson.keep(prefill_steps=on_card.cost(tokens=1024, graph=True).seconds / eight.seconds)

# %% [markdown]
# In the pictures (4 slots, 16 requests) grey is paid for and empty, until the last request ends. A static batch lasts as long as its longest request.
#
# - **Throughput.** The 64 requests take {{batching_gain:.1f}} times as many steps in static batches.
# - **Latency** is two numbers: the time to a request's first token, which gets shorter, and the time for each token after it, which stays a step. The mean
#   request ends after {{mean_continuous:.0f}} steps, and not after {{mean_static:.0f}}.
# - **Prefill** is left out, here and below. It delays all slots: a prompt of 1,024 tokens takes as long as {{prefill_steps:.1f}} steps of this batch.
#
# Each slot now stands at a place of its own. One graph is still enough (*Places of their own*, in *Further*).
#
# ### What did each change buy?
#
# The simple loop has no cache, and asks for each token. Five changes come one on top of the other; the fourth is *eight slots*, with static batches.
# How many times as many tokens a second do they make as one?

# %% experiment
you = lesson.predict({"eight slots: times as many tokens a second": ...}, choices=[1.3, 2.5, 5, 8])

# %% experiment
rates = {
    "no cache, and it asks": 1 / (by_way["no cache", 1].seconds + wait_s["eager"]),
    "a static cache, its mask made once": 1 / loops["asks, eager"].seconds,
    "no waits": 1 / loops["stays, eager"].seconds,
    "one graph": 1 / loops["stays, graph"].seconds,
    "eight slots": runs["static"].tokens / (runs["static"].steps * eight.seconds),
    "continuous batching": runs["continuous"].tokens / (runs["continuous"].steps * eight.seconds),
}
you.against_ratios(
    {"eight slots: times as many tokens a second": rates["eight slots"] / rates["one graph"]},
    experiments.steps_up(rates),
    evidence="simulated (H100) · arithmetic",
    what="times",
)

# %% experiment tags=["fold"]
first = rates["no cache, and it asks"]
lesson.keep(all_steps=rates["continuous batching"] / first, one_text=rates["one graph"] / first)
lesson.keep(
    eight_ms=1e3 * eight.seconds, one_ms=1e3 * loops["stays, graph"].seconds, static_used=runs["static"].used
)

# %% [markdown]
# Only {{static_used:.0%}} of the eight slots' steps make a token, and a step takes {{eight_ms:.2f}} ms, not {{one_ms:.2f}} ms.
#
# **{{all_steps:.0f}} times as many tokens a second, for all requests together** (GPT-2, simulated). One text alone got {{one_text:.1f}} times faster (recorded:
# its step {{seen_graph_1:.1f}} times). For one text of so small a model the cache by itself gains nothing; it makes the graph possible. The last factor of two is a few lines of plain Python that decide
# who runs, plus a place for each row. (The first line is the 1,024th token of a text; these requests make {{request_mean:.0f}}.)
#
# ## The running example
#
# The course's small GPT writes 32 bytes without a cache, and with a static one.

# %% experiment
from helpers import running_example

model = running_example.trained(running_example.after("06"), 10)
plain, cached = (count(write, model, 32) for write in (experiments.without_cache, experiments.with_cache))
assert plain.result == cached.result
print(f"the same bytes, with {plain.flops / cached.flops:.0f} times fewer FLOPs")

# %% [markdown]
# ## Your own script
#
# Does a loop that generates ask for each token? Does it copy what grows? Here is one with both faults.

# %% experiment
import torch
from torch.profiler import profile

from helpers import running_example

# at home: your own model, and below the loop that generates with it
model = running_example.trained(running_example.after("06"), 1)
text = torch.tensor([[84]])

with torch.no_grad(), profile() as seen:
    for _ in range(4):
        token = model(text)[:, -1].argmax().item()
        text = torch.cat([text, torch.tensor([[token]])], dim=1)
for name in ("aten::_local_scalar_dense", "aten::cat"):
    print(name, sum(event.name == name for event in seen.events()), "times for 4 tokens")

# %% [markdown]
# Four questions, and four copies of a text that goes through the model as a whole. What to look at:
#
# - `aten::cat`: see what grows (`profile(record_shapes=True)`, then `event.input_shapes`). If the whole input grows, there is no cache. If keys and values grow, make the cache static.
# - Gaps between kernels (`seen.export_chrome_trace("trace.json")`, lesson 03): the CPU is the limit. Fix the shapes, then `torch.compile(step, mode="reduce-overhead")`. It must know that the cache's tensors
#   keep their addresses: make them buffers (`register_buffer`), or call `torch._dynamo.mark_static_address` for each. Else it may say *skipping cudagraphs due to mutated inputs*.
# - No gaps: compile, if kernels take a few µs each. Else bytes are the limit (of a long prompt: arithmetic), and a larger batch or fewer bits a weight help.
# - Many `aten::_local_scalar_dense`: ask every few steps, and never inside a step that becomes a graph.
#
# ## Sources on trial

# %% experiment
from helpers.lessons.generating import claims

trials = claims.on_trial()
lesson.verdicts(trials[:1], evidence="simulated (A100) · arithmetic")

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | One sequence of 7B: a step takes {{best_read:.1f}} (gpt-fast, A100) to {{worst_read:.1f}} (simulated H100) times as long as reading the weights. | Small models: launches, or the least time of a kernel, make it many times as long. |
# | More sequences in a batch cost little. | Once their caches are a noticeable part of the bytes. |
# | A static cache copies only what is new, and has one shape. | It reads empty places too. With one sequence, a small model in eager steps gains nothing. |
# | Make a step one graph, and its mask once. | Large models on a quick CPU: their kernels take longer than the launches. |
# | Not asking for each token buys a few percent. | A CPU that works on the answer before the next step. |
# | Let the next request in when one ends. | Requests of equal length gain nothing. |
#
# **Read on**: Team PyTorch, [GPT, Fast](https://pytorch.org/blog/accelerating-generative-ai-2/) (2023), and [its
# code](https://github.com/pytorch-labs/gpt-fast).

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
# *places*, from one pool for all sequences (*A cache in blocks*). A careful server lets a request in only if
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

    Scheduler(slots, places), both 1 or more: at most `slots` sequences at once, which hold at most `places` places of the cache
    together.

    arrive(name, prompt, most): a request waits from now on. No name comes twice. While the request runs, it holds
    prompt + most places. ValueError if it could never fit; then nothing has changed.
    next() → a new list: the names of all who take part in the next step, in the order in which they came. They are those
    who run, and those who are let in now. Let in whoever is first, while a slot is free and there are places enough for the
    first one; perhaps several in one step. Nobody goes in before one who came earlier. [] if there is nobody.
    ended(name): a request that ran takes part no more. Its slot and places are free for the next step.
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
# tokens, one after the other. (GPT-2's token, above, takes about a tenth of the 7B model's.) The large model looks at all of them in one pass, which gives its shares (probabilities) for each of the k + 1 places.
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
    coin(p) → True with probability p, or always if p is above 1. pick(weights) → i with probability weights[i] / sum(weights):
    none of them negative, not all 0. No other chance. k: 1 or more.

    `prefix` stays as it is. The test's shares are Fractions; float64 is exact enough, float32 is not.

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
# ### Move the batch (3 min)
#
# Move *other lengths*, with both policies. Is static batching ever faster? With how many slots are the two alike?
#
# <details><summary>Answers</summary>Never: continuous batching lets no request wait longer than static batching does. It gains most where a long request stands among
# short ones. The two are alike with one slot, where each batch is one request, and with as many slots as requests, where nobody waits.</details>

# %% experiment
batching.batching_explorer("static", slots=6, requests=12)

# %% [markdown]
# ### Places of their own (3 min)
#
# With continuous batching each slot stands at another place. So `places` gets a row for each, (batch, 1), and the mask too,
# (batch, 1, 1, length): it compares with `places[:, None, :, None]`, and so hides what the slot's last request has left. In the cache
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
# [`torch.export`](https://docs.pytorch.org/docs/stable/export.html) captures a model as one program, for shapes that you name.
# [AOTInductor](https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html) compiles this program ahead of time into a
# package. A process loads the package, and needs neither the model's source nor a compiler. What of the decoding step survives?

# %% experiment
step_model = experiments.Step()
example = (torch.tensor([[1]]), torch.tensor([0]))
with torch.no_grad():
    program = torch.export.export(step_model, example)
experiments.exported(step_model, program)

# %% [markdown]
# One program, and the cache is in it: a buffer that the program writes in place. It checks its shapes, and compiles nothing again. What is lost: Python. A
# Python `if` on a value, another shape than those named, a hook set later: none of this is possible any more. (What a hook did
# at export is in the program.) The next cell compiles the package,
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
lesson.keep(reached=experiments.PUBLISHED["bf16"] * experiments.reading_s("7B", "A100"))
experiments.fewer_bits(experiments.PUBLISHED)

# %% [markdown]
# (In bf16 that is {{reached:.0%}} of the limit. The source says 72 %: it counts with its own bytes and bandwidth.)
#
# The less there is to read, the further from the limit. Three likely reasons: kernels have their least time, attention and its cache stay in bf16, and
# weights have to be turned back into bf16. That must happen inside the matrix product's kernel: a kernel of its own would write all
# weights out in bf16, and read them once more. With 8 bits `torch.compile` puts it there. With 4 bits gpt-fast calls an operator that was
# written for it, `torch.ops.aten._weight_int4pack_mm`.

# %% [markdown]
# ### Their sources on trial

# %% experiment
lesson.verdicts(trials[1:], evidence="simulated (A100) · recorded (H100) · live (CPU) · arithmetic")
