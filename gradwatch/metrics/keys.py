"""A framework's key, read into axes: which metric, statistic, stream, role, agent, policy, scope and rank.

The order is: whole key in the catalogue; stream prefix off; rank off; statistic off; namespace off; one segment taken as the
name of a role. A key that the catalogue still does not know is kept under its own name, with its stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from gradwatch.metrics.catalogue import by_alias
from gradwatch.metrics.metric import Metric

_STREAMS = (
    (
        "eval",
        re.compile(r"^(?:eval|evaluation|val|valid|validation|test|heldout|val-core|val-aux|dev)[/_. ](?!time)(?=.)"),
    ),
    ("rollout", re.compile(r"^(?:rollout|collection|sampler)/(?=.)")),
    ("train", re.compile(r"^(?:train|training|trainer)[/_. ](?=.)")),
)
_NAMESPACES = frozenset(
    "actor critic training train loss rollout collection time perf objective policy optimizer metrics completions total global "
    "model input_info reward rewards timing_s counters timers".split()
)
_STATS = {
    "mean": "mean",
    "avg": "mean",
    "average": "mean",
    "std": "std",
    "max": "max",
    "min": "min",
    "median": "median",
    "sum": "sum",
    "count": "count",
    "nonfinite": "nonfinite",
}
_STAT_SUFFIX = re.compile(r"(?:[/_](mean|avg|average|std|max|min|median|sum)(@\d+)?|__(min|max)|/(count|nonfinite))$")
_STAT_PREFIX = re.compile(r"(^|/)(mean|avg|average|std|max|min|median)[_ ]")
_STREAM_INSIDE = re.compile(r"^([^/]+)/(?:eval|val|valid|validation|test|(train|training))/")
_STREAM_SUFFIX = re.compile(r"[/_ ](?:(val|valid|validation|eval|test|dev)|train|training)$")
_NOT_A_ROLE = frozenset(
    "layer layers module modules block blocks weight weights encoder decoder embed debug system gpu cpu env epoch step iter top "
    "head expert optimizer group".split()
)
_ROLE = re.compile(r"[^\W\d][\w .@+-]{0,99}$")
_OF_A_POLICY = frozenset(("grad_norm", "learning_rate", "loss"))
_RANK = re.compile(r"(?:^|/)rank[_:-]?(\d+)(?=/|$)")
_INSTANCE = re.compile(r"^(.*[^\d_-])[-_](\d+)$")
_COMPONENT = re.compile(r"^(?:rewards|reward_component)/(?P<scope>[^/]+)$")
_REWARD_WORDS = frozenset(("reward", "rewards", "return", "rew"))
_REWARD_FILLERS = frozenset(
    (
        "ep",
        "episode",
        "episodic",
        "episodes",
        "average",
        "avg",
        "mean",
        "train",
        "raw",
        "info",
        "t",
        "env",
        "team",
        "total",
        "per",
        "agent",
        "undiscounted",
    )
)
_GRAD_WORDS = frozenset(("grad", "gradient", "gradients"))
_GRAD_EXCLUDED = frozenset(("max", "clipped", "threshold", "clip", "coef", "ratio", "after", "post", "target", "postclip"))
_SETTINGS = frozenset(
    (
        "max_grad_norm",
        "clip_grad_norm",
        "grad_norm_clip",
        "clip_range",
        "cliprange",
        "input_info/clip_range",
        "target_kl",
    )
)


NO_RANK = -1


class Axes(NamedTuple):
    """What a key measures. Empty axes do not apply."""

    metric: str
    stream: str = "train"
    stat: str = ""
    role: str = ""
    agent: str = ""
    policy: str = ""
    scope: str = ""
    rank: int = NO_RANK


@lru_cache(maxsize=200_000)
def resolve(key: str) -> Axes:
    """The axes of `key`; keys of any length and content are accepted, unknown ones keep their own name."""
    stream, rest = _split_stream(key)
    rank, rest = _split_rank(rest)
    low = rest.lower().strip()
    whole = by_alias().get(key.lower())
    if key.lower() in _SETTINGS or low in _SETTINGS:
        return Axes(metric=key, stream=stream, rank=rank)
    if whole is not None:
        return Axes(metric=whole.name, stream=stream, rank=rank)
    return (
        _known(stream, rank, low)
        or _component(stream, rank, rest)
        or _with_role(key, stream, rank, rest)
        or _by_words(stream, rank, low)
        or Axes(metric=key, stream=stream, rank=rank)
    )


def _split_stream(key: str) -> tuple[str, str]:
    low = key.lower()
    for stream, prefix in _STREAMS:
        if found := prefix.match(low):
            return stream, key[found.end() :]
    if found := _STREAM_INSIDE.match(low):  # `solver/eval/accuracy`
        return ("train" if found[2] else "eval"), key[: found.end(1)] + key[found.end() - 1 :]
    if found := _STREAM_SUFFIX.search(low):
        return ("eval" if found[1] else "train"), key[: found.start()]
    return "train", key


def _split_rank(rest: str) -> tuple[int, str]:
    found = _RANK.search(rest.lower())
    if found is None or len(found[1]) > 9:
        return NO_RANK, rest
    return int(found[1]), (rest[: found.start()] + rest[found.end() :]).strip("/") or rest


def _split_stat(low: str) -> tuple[str, str]:
    if found := _STAT_SUFFIX.search(low):
        stat = _STATS[found[1] or found[3] or found[4]]
        return stat + (found[2] or ""), low[: found.start()]
    if found := _STAT_PREFIX.search(low):
        return _STATS[found[2]], low[: found.start()] + found[1] + low[found.end() :]
    return "", low


def _lookup(low: str) -> tuple[Metric, str] | None:
    """The metric and statistic of a name without stream, rank and role."""
    stat, bare = _split_stat(low)
    known = by_alias()
    # `reward/std` is a reward's deviation: it is asked for before the namespace is taken off `std`.
    for whole, part in zip_longest(_without_namespaces(low), _without_namespaces(bare), fillvalue=""):
        if whole in known:
            return known[whole], ""
        if part in known:
            return known[part], stat
    return None


def _without_namespaces(name: str) -> Iterator[str]:
    """A name, and what is left of it as the namespaces in front are taken off one by one."""
    yield name
    head, slash, tail = name.partition("/")
    while slash and head in _NAMESPACES:
        yield tail
        head, slash, tail = tail.partition("/")


def _known(stream: str, rank: int, low: str) -> Axes | None:
    found = _lookup(low)
    if found is None:
        return None
    head = low.partition("/")[0]
    policy = head if head in ("actor", "critic") and found[0].name in _OF_A_POLICY else ""
    return Axes(metric=found[0].name, stream=stream, stat=found[1], policy=policy, rank=rank)


def _component(stream: str, rank: int, rest: str) -> Axes | None:
    """TRL's `rewards/{function}/mean`, and our `reward_component/{function}/mean`."""
    stat, bare = _split_stat(rest.lower())
    found = _COMPONENT.match(bare)
    if found is None or not stat:
        return None
    return Axes(metric="reward_component", stream=stream, stat=stat, scope=rest.split("/")[1], rank=rank)


def _with_role(key: str, stream: str, rank: int, rest: str) -> Axes | None:
    """Take out one segment (or an environment and an agent) and see whether the catalogue knows what is left."""
    segments = rest.split("/")
    if not 2 <= len(segments) <= 8:
        return None
    for at in range(len(segments) - 1):
        name = segments[at]
        if not _may_be_role(name):
            continue
        left = "/".join(segments[:at] + segments[at + 1 :])
        found = _lookup(left.lower()) or _grad_norm_part(left.lower())
        if found is not None:
            return _role_axes(key, stream, rank, found, name)
        agent = segments[at + 1]
        if at + 2 < len(segments) and _may_be_role(agent):
            found = _lookup("/".join(segments[:at] + segments[at + 2 :]).lower())
            if found is not None:
                return _role_axes(key, stream, rank, found, agent, scope=name)
    return None


def _may_be_role(segment: str) -> bool:
    low = segment.lower()
    if low.rstrip("0123456789._-") in _NOT_A_ROLE:
        return False
    return bool(_ROLE.match(segment)) and low not in _NAMESPACES and low not in _NOT_A_ROLE and low not in by_alias()


def _grad_norm_part(low: str) -> tuple[Metric, str] | None:
    head = low.rpartition("/")[2]
    if head.startswith("grad_norm_") and not _GRAD_EXCLUDED & set(head.split("_")):
        return by_alias()["grad_norm"], ""
    return None


def _role_axes(key: str, stream: str, rank: int, found: tuple[Metric, str], name: str, scope: str = "") -> Axes:
    policy, agent = "", ""
    role = name
    if "_" in name and " " in name:  # Dr. MAS worker groups: `Qwen2.5-7B_Search Agent` = weights, then role
        policy, role = name, name.partition("_")[2]
    elif instance := _INSTANCE.match(name):
        role, agent = instance[1], name
    if key.startswith(("val-core/", "val-aux/")):  # verl names the data set there
        role, agent, scope = "", "", name
    if found[0].name == "grad_norm" and not scope:
        scope = key.rpartition("grad_norm_")[2] if "grad_norm_" in key else ""
    return Axes(
        metric=found[0].name,
        stream=stream,
        stat=found[1],
        role=role,
        agent=agent,
        policy=policy,
        scope=scope,
        rank=rank,
    )


def _by_words(stream: str, rank: int, low: str) -> Axes | None:
    """Rewards and gradient norms under names that no catalogue could list."""
    if len(low) > 200:
        return None
    stat, bare = _split_stat(low)
    words = [word for word in re.split(r"[^a-z0-9]+", bare) if word]
    if _REWARD_WORDS & set(words) and set(words) <= _REWARD_WORDS | _REWARD_FILLERS:
        spoken = "mean" if {"average", "avg"} & set(words) else stat
        return Axes(metric="reward", stream=stream, stat=spoken, rank=rank)
    if "norm" in words and _GRAD_WORDS & set(words) and not _GRAD_EXCLUDED & set(words):
        scope = "/".join(word for word in words if word not in _GRAD_WORDS | {"norm"})
        return Axes(metric="grad_norm", stream=stream, stat=stat, scope=scope, rank=rank)
    return None
