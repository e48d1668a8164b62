# %% [markdown]
# # 18 · Sources on trial
#
# ## What of all this is true?
#
# The lessons before this one have put claims to the test, a few in each. Here they come together: four texts on fast
# PyTorch, the code of a book, PyTorch's own tuning guide, three posts on fast generating, and single sentences of papers and
# manuals on attention and kernels (lessons 19 to 21). What holds, what holds under a condition, what is wrong? The
# answers will age, and other texts will come. So the second half is about the method: how you try a claim yourself.
#
# **Time** 60 min, with two exercises; *Further*: 29 min, with one more. **Before this** lessons 00 and 02: pairs and
# intervals, counters. The other lessons help. Each claim says where it was tried.
#
# **Afterwards you can**
# - say what a claim leaves out, and what would have to be measured;
# - design a trial with a control, a counter and more than one size;
# - tell "refuted" from "cannot tell", and from a trial that shows nothing.

# %% setup
import math
from collections.abc import Callable

import numpy as np
import torch

from helpers import count, lesson, running_example
from helpers.lessons.sources_on_trial import experiments


def interval(before, after):
    """Ratio before ÷ after of paired numbers, and the two ends of its 95 % interval, as in lesson 00."""
    d = np.log(np.divide(before, after))
    reach = 2 * d.std(ddof=1) / math.sqrt(len(d))
    return tuple(round(math.exp(x), 9) for x in (d.mean(), d.mean() - reach, d.mean() + reach))


torch.set_num_threads(1)
lesson.start("18_sources_on_trial", evidence=["live (CPU)", "simulated (H100)", "published", "arithmetic"])

# %% [markdown]
# ## 1 · Six claims
#
# A verdict begins with one of four words:
#
# - **confirmed**: it was so in every case that was tried, and these are cases that the sentence speaks of (if it says "may" or
#   "sometimes", one such case is enough);
# - **partly**: it was so in some of them and not in others, or for one part of the sentence; the verdict says which;
# - **refuted**: it was so in none;
# - **untested**: nothing that was run or cited here could have shown it to be wrong; the verdict says what a trial would take.
#
# Here are six claims that no lesson has tried. Two are from an article on five strategies, one from the notes on a book,
# and three from PyTorch's [Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html).
# The course's PyTorch is newer than all of these texts. What will the verdicts say?

# %% experiment
claim_of = {
    "`num_workers` loads data with many threads": "18-five-strategies-threads",
    "`persistent_workers=True` is a key parameter of a loader": "18-five-strategies-persistent",
    "DDP's buckets cost memory": "18-book-notes-buckets-take-memory",
    "`torch.compile` makes one kernel of pointwise operations": "18-tuning-guide-gelu-in-one",
    "a convolution before a batch norm needs no bias": "18-tuning-guide-bias-before-norm",
    "set `.grad = None`: it is less work than `zero_grad()`": "18-tuning-guide-grad-is-none",
}
you = lesson.predict(dict.fromkeys(claim_of, ...), choices=["confirmed", "partly", "refuted"])

# %% experiment
claims = (
    experiments.all_claims()
)  # what the lessons keep, and the trials that no lesson runs: about ten seconds
words, measured = experiments.words_of(claims, claim_of)
you.against(words, measured, evidence="live (CPU)", what="verdict")

# %% [markdown]
# Three ways of being wrong are in this list. The first claim has the wrong **thing**:
# [`DataLoader`](https://docs.pytorch.org/docs/stable/data.html) starts processes. The claim about the bias leaves out a
# **condition**: if a network was trained with the bias, the norm's running averages contain it, and without it the results
# are others. The claims about workers and buckets leave out one each. And the last claim has **aged**:
# [`zero_grad()`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html) has set `None` by
# itself since PyTorch 2.0. None of this shows in the text. They all sound like the claim that holds.

# %% [markdown]
# ## 2 · The table
#
# Here are the sources, and who wrote them. The key is what the table calls a source. No measured number in it was typed:
# the lessons' runs keep their verdicts, and the build collects them.

# %% experiment
claims

# %% [markdown]
# All in all there are {{claims}} claims. {{untested}} of them are untested, each for a reason: the source does not say which
# model it means, or a GPU or a large data set is missing, or no run could show it. The other {{tested}} were tried. What
# part of these is confirmed, and what part refuted? Which source has the most refuted ones?

# %% experiment
you = lesson.predict(
    {"confirmed": ..., "refuted": ..., "most refuted": ...},
    choices={
        "confirmed": ["hardly any", "an eighth", "a third", "more than half"],
        "refuted": ["hardly any", "an eighth", "a third", "more than half"],
        "most refuted": ["book-notes", "compile-300", "five-strategies", "guide"],
    },
)

# %% experiment
refuted = {source: words["refuted"] for source, words in claims.by(lambda row: row.source).items()}
counted = {word: claims.part(word) for word in ("confirmed", "refuted")}
lesson.keep(claims=len(claims.rows), untested=claims.total["untested"], tested=claims.tested)
lesson.keep(
    partly=claims.of_ten("partly"), confirmed=claims.of_ten("confirmed"), refuted=claims.of_ten("refuted")
)
lesson.keep(named=experiments.conditions(claims)["with a condition"], all_partly=claims.total["partly"])
you.against(
    counted | {"most refuted": max(refuted, key=refuted.get)}, claims.picture(), evidence="arithmetic"
)

# %% [markdown]
# Of ten claims, about {{confirmed}} hold as they stand, {{refuted}} do not hold, and {{partly}} hold under a condition. So
# the usual answer to "is this true?" is "**when?**". {{all_partly}} claims are partly true, and {{named}} of these verdicts
# name the condition. Look for three kinds of it below: a **size** (does it fit? are the kernels small?), a **place** (one
# machine or several) and a **setting** of PyTorch.

# %% experiment
claims.find(verdict="partly", text="speed", most=5)

# %% [markdown]
# `find` takes a source's key, a verdict's word, a lesson's number and a text, alone or together, and the most rows to show.
# Look for what you were told once, or for a lesson that you have worked through.

# %% experiment
claims.find(source="compile-300", verdict="refuted", most=3)

# %% experiment
claims.find(lesson="05", most=3)

# %% [markdown]
# The last column says which lesson tried a claim, and in which section. A name in code is a function below
# `helpers/lessons/`. The whole table is `docs/claims.md` of the course's repository, and a page of its site. There every
# claim has a link, from its source and from its lesson.

# %% [markdown]
# ## 3 · A trial in five parts
#
# How do you try a claim? Say that a post claims: *"`foreach=True` halves the operators of an AdamW step."* A trial has five
# parts.
#
# 1. The **claim**, so that it can fail: *what* falls, *by how much*, *where*. Here: operators, to half or less, whatever
#    the number of parameters.
# 2. **Before and after**, which differ in the claimed thing only. Both are warm: the first step of
#    [AdamW](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html) makes its state, and does not count.
# 3. A **control**: the same rewriting, with a change that must do nothing. What the control wins is not the change's.
#    Here: an option is written out that is the default anyway.
# 4. A **counter** for what the claim names. A clock reads everything else too.
# 5. **Several sizes**, small and large, since the condition hides there.

# %% experiment
SIZES = (1, 2, 8, 32)  # parameters of the model


def operators(n, warm=True, **options):
    """Operators of an AdamW step over n parameters."""
    weights = [torch.ones(4, requires_grad=True) for _ in range(n)]
    for w in weights:
        w.grad = torch.ones(4)
    optimizer = torch.optim.AdamW(weights, **options)
    if warm:
        optimizer.step()  # makes the state
    return count(optimizer.step).operators


def trial_of_foreach(sizes, warm=True):
    """size → operators before, with the control, after."""
    return {
        n: (
            operators(n, warm, foreach=False),
            operators(n, warm, foreach=False, weight_decay=0.01),  # the default, written out
            operators(n, warm, foreach=True),
        )
        for n in sizes
    }


# %% [markdown]
# What would each of these designs say?

# %% experiment
you = lesson.predict(
    {"one size, 32": ..., "one size, 1": ..., "all sizes": ...},
    choices=["confirmed", "partly", "refuted"],
)

# %% experiment
designs = {"one size, 32": trial_of_foreach([32]), "one size, 1": trial_of_foreach([1])}
designs |= {"all sizes": trial_of_foreach(SIZES)}
cold = trial_of_foreach(SIZES, warm=False)
lesson.keep(cold_after=cold[8][2], warm_after=designs["all sizes"][8][2])
halved = [n for n, (_, control, after) in designs["all sizes"].items() if after <= control / 2]
lesson.keep(fails=max(set(SIZES) - set(halved)), holds=min(halved))
you.against(
    {name: experiments.word(trial) for name, trial in designs.items()},
    experiments.counts_table(designs | {"all sizes, first step": cold}),
    evidence="live (CPU)",
    what="says",
)

# %% [markdown]
# Three honest people, three verdicts. With one size you find what is true at this size. Only the trial over all sizes finds
# the condition. `foreach` has a price of its own, whatever the number of parameters: up to {{fails}} of them it does not
# halve the operators, with {{holds}} it does. And a first step also counts what is made once: {{cold_after}} operators for 8
# parameters in place of {{warm_after}}.
#
# The control gives the same counts as *before*, as it should. It is there for the other case. If a control wins too, the
# gain came with the rewriting: another order, a copy left out, a cache that was warm by then.
#
# **Exercise 18.1 — put a claim on trial** (★★, 12 min)
#
# The claim is *"the change halves the operators"*. Write the trial. It is run in worlds where the claim holds, where it
# does not, where it holds for some sizes only, and where the rewriting does it and not the change.
#
# <details><summary>Hint 1</summary>For each size: call all three once, uncounted. Then count the control and the
# changed one: <code>count(after, n).operators</code>.</details>
# <details><summary>Hint 2</summary>Which two numbers does the claim compare, if the rewriting itself may win or lose
# something? Keep the sizes at which it holds in a list.</details>
# <details><summary>The idea</summary>It holds at n if <code>count(after, n).operators &lt;= count(nothing, n).operators
# / 2</code>. All sizes hold: "confirmed"; none: "refuted"; else "partly".</details>


# %% exercise="trial"
def trial(
    before: Callable[[int], None],
    after: Callable[[int], None],
    nothing: Callable[[int], None],
    sizes: list[int],
) -> tuple[str, list[int]]:
    """The verdict on "the change halves the operators of a step", and the sizes at which it holds.

    before(n), after(n): one step on n rows, without and with the change. nothing(n): the control, rewritten in the
        same way as after, without the change. What the rewriting wins or loses is not the change's.
    sizes: the numbers of rows that the claim is about, at least one; run no other ones.

    It holds at n if the change leaves half of the operators or less. The first call at a size may set something up,
    in any of the three; this does not count. Counts do not scatter, times do.

    Returns ("confirmed", sizes) where it holds at all of them, ("refuted", []) at none, else
    ("partly", those at which it holds).
    """
    ### BEGIN SOLUTION
    holds = []
    for n in sizes:
        for step in (before, after, nothing):
            step(n)
        if count(after, n).operators <= count(nothing, n).operators / 2:
            holds.append(n)
    return "confirmed" if len(holds) == len(sizes) else "partly" if holds else "refuted", holds
    ### END SOLUTION


# %% test="trial" points=2
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("it halves them everywhere"),
    World("it saves a quarter"),
    World("it has a cost of its own, so it helps with many rows"),
    World("the rewriting halves them, not the change"),
    World("it changes nothing", setup=5),
    World("it changes nothing", sleeps="before"),
)

# %% hidden="trial" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("it helps with few rows, then falls back", sizes=(32, 8, 24, 2)),
    World("it helps where rows are a multiple of 8", sizes=(8, 12, 24)),
    World("exactly half is enough", sizes=(3, 7), setup=4, pays="after"),
    World("it changes nothing", sizes=(2,), setup=6, pays="nothing", sleeps="before"),
    World("it makes more of them", sizes=(5, 20)),
    World("it has a cost of its own, so it helps with many rows", sizes=(2, 5), setup=3),
)
### END HIDDEN TESTS

# %% hidden="trial" points=2
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import World, check_trial

check_trial(
    World("the rewriting halves them, not the change", sizes=(6, 11), setup=3),
    World("rewriting and change halve them, one after the other", sizes=(4, 9)),
    World("the rewriting doubles them, and the change halves that", sizes=(4, 9)),
    World("it misses half by one", sizes=(4, 9)),
    World("it halves them everywhere", sizes=(5, 12), sleeps="after"),
    World("it saves a quarter", sizes=(8, 16), sleeps="nothing"),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 4 · Three fresh claims
#
# Sometimes the counter is a clock after all, and numbers scatter. Then the interval speaks, as in lesson 00. Three posts
# make a claim each, and somebody has measured them in pairs, the control too, and changed nothing else. (The posts do not
# exist. The numbers are drawn at random with a ratio that we chose.) Before a verdict come two questions about the trial
# itself, in this order:
#
# 1. Was something else changed as well, or does the control's interval leave out 1? Then the trial is **confounded**:
#    something else is at work, and the numbers cannot tell one from the other.
# 2. Is there a condition without its control? **no control**: nobody knows what the change is worth there.
#
# Only then: where does the interval lie? If all of it lies at the promise or above, the claim holds under this condition.
# If all of it lies below, the claim fails there. If the promise is inside, the runs cannot tell. **confirmed**: it holds
# under all conditions. **refuted**: it fails under all. **partly**: it holds under one and fails under another. Else
# **cannot tell**.

#
# In the picture each row is a condition, with its ratio and its interval. Below it is the row of its control. The words at
# the right compare with 1, and not with the promise. The verdict is yours.

# %% experiment
experiments.fresh_picture(interval)

# %% experiment
you = lesson.predict(
    {"claim A": ..., "claim B": ..., "claim C": ...},
    choices=["confirmed", "partly", "refuted", "cannot tell", "no control", "confounded"],
)

# %% experiment
you.against({"claim A": "partly", "claim B": "confounded", "claim C": "cannot tell"}, evidence="arithmetic")

# %% [markdown]
# Claim A holds where the batch is small, and fails where it is large. Claim B looks best of all. But with 48 layers the
# control wins too: something in the rewriting saves time, and how much of the gain is the change's, nobody knows.
# The middle of claim C lies at the promise. Eight noisy pairs do not refute it, and they do not confirm it either. Four
# times as many would halve the interval.
#
# **Exercise 18.2 — design the trial** (★★, 10 min)
#
# Nobody hands you the numbers now. You are given a claim, and `run`, which measures as many pairs as you ask for. Decide what
# is run, and how often. Then give the verdict by the rules above, with `interval` from the set-up. You have 80 pairs for each
# condition, controls included. Claims differ in their noise: a few pairs are enough for some, and for one not even all of
# them.
#
# <details><summary>Hint 1</summary>What has to be measured under each condition before its numbers mean anything? How many intervals is
# that?</details>
# <details><summary>Hint 2</summary>An interval of n pairs is half as wide with 4 n. So a control of a few pairs finds nothing, even if there is
# something. Share the pairs out evenly.</details>
# <details><summary>The idea</summary><code>n = most // (2 * len(conditions))</code> pairs of the control and of the change under each
# condition. A control whose interval leaves out 1: confounded. Else each condition holds (lower end at the promise or above), fails
# (upper end below) or is open.</details>

# %% exercise="judge"
Pairs = tuple[list[float], list[float]]


def judge(promised: float, conditions: list[str], run: Callable[[str, str, int], Pairs], most: int) -> str:
    """Try the claim that before ÷ after ≥ promised under all conditions, and say what came out.

    run("change", condition, n): (before, after) of n ≥ 6 pairs. run("nothing", condition, n): the same for the control.
    most: pairs that you may run in all, 80 for each condition.

    Returns "confounded" if under one condition the control's interval leaves out 1; else "confirmed", "refuted", "partly"
    or "cannot tell", as above.
    """
    ### BEGIN SOLUTION
    n, words = most // (2 * len(conditions)), set[str]()
    for condition in conditions:
        _, low, high = interval(*run("nothing", condition, n))
        if not low <= 1 <= high:
            return "confounded"
        _, low, high = interval(*run("change", condition, n))
        words.add("holds" if low >= promised else "fails" if high < promised else "open")
    if words == {"holds"}:
        return "confirmed"
    if words == {"fails"}:
        return "refuted"
    return "partly" if {"holds", "fails"} <= words else "cannot tell"
    ### END SOLUTION


# %% test="judge" points=1
from helpers.lessons.sources_on_trial.exercises import Claim, check_judge

check_judge(
    Claim("holds twice", 1.3, {"small": (1.5, 1.0), "large": (1.4, 1.0)}),
    Claim("holds where it is small", 1.3, {"small": (1.5, 1.0), "large": (1.1, 1.0)}),
    Claim("less than promised", 2.0, {"small": (1.5, 1.0), "large": (1.4, 1.0)}),
    Claim("the rewriting wins", 1.3, {"small": (1.5, 1.0), "large": (2.4, 1.5)}),
    Claim("a close one, and noisy", 1.2, {"GPT": (1.25, 1.0)}, scatter=0.1),
    Claim("far too noisy", 1.2, {"GPT": (1.22, 1.0)}, scatter=0.3),
)

# %% hidden="judge" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import Claim, check_judge

check_judge(
    Claim("a counter, the promise met exactly", 2.0, {"8": (2.0, 1.0), "64": (4.0, 1.0)}, scatter=0.0),
    Claim("a counter, promised more", 4.0, {"8": (2.0, 1.0), "64": (4.0, 1.0)}, scatter=0.0),
    Claim(
        "one holds, one fails, one is open", 1.2, {"a": (1.5, 1.0), "b": (1.05, 1.0), "c": (1.2, 1.0)}, 0.1
    ),
    Claim("one holds, one is open", 1.2, {"a": (1.5, 1.0), "c": (1.2, 1.0)}, scatter=0.1),
    Claim("one fails, one is open", 1.2, {"b": (1.02, 1.0), "c": (1.2, 1.0)}, scatter=0.1),
    Claim("it became slower", 1.1, {"a": (0.8, 1.0), "b": (0.9, 1.0)}),
    Claim("the control loses", 2.0, {"8": (2.4, 1.0), "64": (2.6, 0.9)}),
    Claim("the control wins a little, in noise", 1.2, {"a": (1.5, 1.0), "b": (1.5, 1.05)}, scatter=0.1),
    Claim(
        "four conditions, the last one fails", 1.2, {k: (1.3 if k < "d" else 1.15, 1.0) for k in "abcd"}, 0.1
    ),
    Claim("a close failure, and noisy", 1.25, {"a": (1.2, 1.0), "b": (1.2, 1.0)}, scatter=0.1),
)
### END HIDDEN TESTS

# %% [markdown]
# ## The running example
#
# Two sources have a headline. Five strategies together: 3.75 times as fast, with 36 % less memory. torch.compile alone:
# steps 4 times as fast, at half the memory. Neither says with which code and which batch, so nobody can run them again.
# What did *our* ladder bring, from the plain script of lesson 00 to bf16 in lesson 10? Here is the claim *"everything
# together, at least 4 times as fast at half the memory"*, on our script.

# %% experiment
plain, best = running_example.after("00"), running_example.after("10")
first, last = running_example.score(plain), running_example.score(best)
lesson.keep(times=first.step_s / last.step_s, memory=last.peak_bytes / first.peak_bytes)
graph = running_example.score(running_example.after("10+07"))  # with lesson 07's CUDA graph on top
lesson.keep(graph_times=first.step_s / graph.step_s, graph_memory=graph.peak_bytes / first.peak_bytes)
running_example.compare(plain, best)

# %% [markdown]
# {{times:.1f}} times as fast, at {{memory:.0%}} of the memory, simulated. So: partly. The time keeps the promise, the memory
# does not quite. With lesson 07's CUDA graph on top it is {{graph_times:.1f}} times, at {{graph_memory:.0%}}: the last rung buys
# time with memory. And all these numbers are about this script, which was slow on purpose. They say little about yours.
# That is the condition which every headline leaves out: **the script it began with**. The table's last line shows a second
# one, **the machine**. It times both scripts on this CPU, live. Most of the changes save launches and waits, which only a
# GPU has. And bf16 is fast only where a processor can multiply it: on many CPUs the "faster" script is slower.
#
# ## Your own script
#
# You read in a blog that something makes training faster. Try it on your own model. The claim below is that a fused optimizer
# makes a step faster. Write your own claim in its place.

# %% experiment tags=["nbval-ignore-output"]
from helpers import compare, count
from helpers.own_script import toy

model, optimizer, loss_fn, loader, device, _ = toy()  # at home: your own

x, y = (part.to(device) for part in next(iter(loader)))


def step_with(**options):
    mine = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    return lambda: (loss_fn(model(x), y).backward(), mine.step(), mine.zero_grad())


before, control, after = step_with(), step_with(weight_decay=0.01), step_with(fused=True)
for name, changed in (("control", control), ("claim", after)):
    print(name, compare(before, changed, pairs=10))  # a ratio, its interval and a verdict
    print(count(before).operators, "→", count(changed).operators, "operators")

# %% [markdown]
# Look first at the control: if it does not come out as "cannot tell", your measurement is not ready. Then the claim: does the interval lie above
# 1? And does the counter say why? Here one operator takes the place of a loop over the parameters. On the toy, most of the step is that loop, so
# this says little about your model. Change the batch and the width, and do it again: a claim that holds at one size is a claim about
# this size. (Is a step of yours slow? Then take `pairs=6`, the fewest that allow an interval.)

# %% [markdown]
# ## Recap
#
# | rule of thumb | where it stops being true |
# |---|---|
# | Ask "when?", not "is it true?". | The API does not exist, or does the opposite: then it is simply wrong. |
# | Say what falls, by how much, where, before you measure. | You are exploring: then what you find is a new claim, and needs new runs. |
# | Change one thing, with a control that must do nothing. | Two changes that only work together. |
# | Count what the claim names. | The claim is about time: pairs and an interval (lesson 00). |
# | Several sizes: the condition hides there. | You have one size, for ever: then try that one well. |
# | "Cannot tell" is a verdict. | It costs little to measure four times as often. |
# | A text ages: ask for which version it was written. | You run that version. |
#
# **Read on**: T. Mytkowicz and others, [*Producing wrong data without doing anything obviously
# wrong!*](https://doi.org/10.1145/1508244.1508275) (2009); T. Hoefler and R. Belli, [*Scientific benchmarking of parallel
# computing systems*](https://doi.org/10.1145/2807591.2807644) (2015); the [code of the book](https://github.com/ailzhang/EfficientPyTorch)
# whose scripts lesson 09 tried.
#
# This is the last lesson. Verdicts age, and the method stays.

# %% experiment
lesson.progress()

# %% [markdown]
# ## Further
#
# Each section stands alone. The second one looks into the table of section 2.
#
# ### From which size on? (14 min)
#
# "Partly" asks for the border. In the trial of `foreach` the claim failed with {{fails}} parameters and held with {{holds}}.
# The border lies between them, or is {{holds}}. To try every size would be slow. If a claim that holds at a size holds at all
# larger ones, then each size that you try halves what is left: try the middle, and go on in the half where the border must
# be.
#
# **Exercise 18.3 — the border of a claim** (★★, 12 min)
#
# Find the smallest size from which the change halves the operators, with few trials.
#
# <details><summary>Hint 1</summary>Try the largest size first. If it does not hold there, it holds
# nowhere.</details>
# <details><summary>Hint 2</summary>Keep two sizes: one at which it holds, and everything below another one at which it
# does not. Stop when nothing lies between.</details>
# <details><summary>The idea</summary>While <code>low &lt; high</code>: <code>middle = (low + high) // 2</code>. If it
# holds there, <code>high = middle</code>, else <code>low = middle + 1</code>. A first call at each size does not
# count.</details>


# %% exercise="border"
def border(before: Callable[[int], None], after: Callable[[int], None], low: int, high: int) -> int | None:
    """The smallest n from low to high at which after(n) takes at most half the operators of before(n); None: at no n.

    before(n), after(n): one step on n rows; n outside low … high raises. If it holds at n, it holds at all larger
        ones. The first call at a size may set something up, which does not count. 1 ≤ low ≤ high.

    Budget: at most 2 + ⌈log2(high - low + 1)⌉ different sizes.
    """
    ### BEGIN SOLUTION

    def holds(n):
        before(n)
        after(n)
        return count(after, n).operators <= count(before, n).operators / 2

    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
    ### END SOLUTION


# %% test="border" points=1
from helpers.lessons.sources_on_trial.exercises import Border, check_border

check_border(Border(at=23), Border(at=1), Border(at=64), Border(at=0), Border(at=40, setup=5))

# %% hidden="border" points=3
### BEGIN HIDDEN TESTS
from helpers.lessons.sources_on_trial.exercises import Border, check_border

check_border(
    Border(at=7, low=7, high=7),
    Border(at=8, low=3, high=7),
    Border(at=2, low=5, high=40, setup=3),
    Border(at=500, low=100, high=1000, setup=4, pays="before"),
    Border(at=1000, low=100, high=1000),
    Border(at=101, low=100, high=1000),
)
### END HIDDEN TESTS

# %% [markdown]
# ### What they want you to type (7 min)
#
# Some claims are code: the source prints a line, and says what it does. Such a line is run **as it is written**. Here are
# three. What does each one do?
#
# - `set_per_process_memory_fraction(0.8)`, to allocate memory in advance. How much does
#   [it](https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.set_per_process_memory_fraction.html) reserve?
# - `x.view(-1, 16 * 16 * 16)`, to give each picture one row of numbers before the last layer. A picture of 32 × 32 has 16 ×
#   16 × 16 numbers at this point. How many rows does *one* picture of 64 × 64 become?
# - `if (i+1) % accumulation_steps == 0: optimizer.step()`, to make one step of four micro-batches. An epoch has ten of them.
#   What becomes of the last two?

# %% experiment
you = lesson.predict(
    {"the fraction reserves": ..., "the large picture becomes": ..., "the last two micro-batches": ...},
    choices={
        "the fraction reserves": ["80 % of the card", "what is used most", "nothing"],
        "the large picture becomes": ["an error", "one row", "four rows"],
        "the last two micro-batches": ["make a step of their own", "are dropped", "wait in .grad"],
    },
)

# %% experiment
typed = dict(
    zip(you, ("08-fraction", "18-compile-300-flattening", "18-five-strategies-end-of-an-epoch"), strict=True)
)
_, table = experiments.words_of(claims, typed)
fraction, picture, last_two = (claims.verdict_of(name).measured for name in typed.values())
answers = [
    "nothing" if "after 0 MiB" in fraction else "80 % of the card",
    "four rows" if "64×64: (4, 10)" in picture else "an error",
    "wait in .grad" if "2 micro-batches left over" in last_two else "make a step of their own",
]
you.against(dict(zip(you, answers, strict=True)), table, evidence="live (CPU) · simulated (H100)")

# %% [markdown]
# None of the three lines raises an error. An error would have said where to look. Code that runs and does something else
# says nothing.
#
# - **The fraction** is a limit, and reserves nothing. To reserve memory in advance, make a tensor of that size and drop it:
#   PyTorch's pool keeps its block (lesson 08).
# - **The picture**: `view(-1, n)` takes as many rows as it needs to get n columns. `flatten(1)` makes one row of each
#   picture, whatever its size. Then the last layer does not fit, and raises an error: that is what you want.
# - **The last two** stay in `.grad`. The first step of the next epoch adds four micro-batches to them.

# %% experiment
pooled = torch.rand(1, 16, 32, 32)  # a picture of 64 × 64, behind a convolution and a pooling
print("view(-1, 16 * 16 * 16):", *pooled.view(-1, 16 * 16 * 16).shape)
print("flatten(1):            ", *pooled.flatten(1).shape)

# %% [markdown]
# ### A source of your own (8 min)
#
# The table grows by one file a source: its title and author, its claims in its order, and a function for each claim that
# you can try. The tuning guide came into the course in this way. Its file is short enough to be read at one go. Which of
# its claims would you try next?

# %% experiment tags=["fold"]
import inspect

from helpers.lessons.sources_on_trial.sources import tuning_guide

print(inspect.getsource(tuning_guide.grad_is_none))
for claim in tuning_guide.CLAIMS:
    print(f"{claim.section}: {claim.words}")

# %% [markdown]
# `docs/adding-a-source.md` of the course's repository, a page of its site too, says how, in half a page.
