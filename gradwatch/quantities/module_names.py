"""Names of parameters as their author wrote them: without the modules that DDP, FSDP, torch.compile or PEFT put around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module", "base_model"})


def clean_names(names: Iterable[str]) -> dict[str, str]:
    """Every qualified name, to the name without wrappers; two names never become one.

    A wrapper holds one module and nothing else, so a component is taken out only where it is all that its parent holds: a
    model's own part called `module`, beside other parts, stays.
    """
    names = list(names)
    children: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        for parent, child in _links(name):
            children[parent].add(child)
    return {name: _clean(name, children) for name in names}


def _links(name: str) -> Iterator[tuple[str, str]]:
    """Each component after the name of what holds it; what holds the first is called ''."""
    parts = name.split(".")
    return ((".".join(parts[:depth]), part) for depth, part in enumerate(parts))


def _clean(name: str, children: Mapping[str, set[str]]) -> str:
    *modules, (_, last) = _links(name)
    kept = [part for parent, part in modules if len(children[parent]) > 1 or not _wraps(parent, part)]
    return ".".join((*kept, last))


def _wraps(parent: str, part: str) -> bool:
    # PEFT's `base_model` holds a `model`, a wrapper there and nowhere else.
    return part in WRAPPERS or (part == "model" and parent.rpartition(".")[2] == "base_model")
