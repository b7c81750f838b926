"""Layers, attention, MLPs and embedding of a model that no family describes, by names and shapes of its tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rankscope.errors import FamilyError
from rankscope.families.embeddings import embedding_sites
from rankscope.families.layers import pattern
from rankscope.families.record import Config, Shapes
from rankscope.families.sites import Part, Site, Stack

_LETTERS = {"q": {"q", "query"}, "k": {"k", "key"}, "v": {"v", "value"}}
_SUFFIXES = {"proj", "lin", "linear", "layer", "dense"}
_FUSED = re.compile(r"^(w?qkv|c_attn|query_key_value|in_proj|attn_qkv)(_proj|_lin|_linear|_layer)?$", re.IGNORECASE)
_OUTPUT = {"o", "out", "output", "dense", "proj", "wo"}
_MLP_OUTPUT = re.compile(
    r"(^|\.)(down|output|out|wo|w2|fc2|fc_out|c_proj|lin2|linear2|ff1|4h_to_h)(_|\.|$)|_4h_to_h|_output"
)
_GATE = re.compile(r"gate|wi_0|(^|\.)w1$")
_CROSS = re.compile(r"cross|encdec|encoder_attn|enc_dec", re.IGNORECASE)
_HEADS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "attention_heads")
_WIDTHS = ("head_dim", "kv_channels", "d_kv")
_WEIGHT = ".weight"


@dataclass(frozen=True)
class Structure:
    """Structure of a model.

    Attributes:
        sites: every matrix, in the order of computation.
        containers: where the layers of each stack are.
        d_model: width of the residual stream.
        guesses: what stands for what, in words.
    """

    sites: tuple[Site, ...]
    containers: Mapping[Stack, str]
    d_model: int
    guesses: tuple[str, ...]


@dataclass(frozen=True)
class _Attention:
    """One attention of one layer: names of its matrices below the layer, and how they are stored."""

    home: str
    names: Mapping[str, str]
    parts: Mapping[str, Part | None]
    transposed: bool
    heads: int | None
    width: int | None

    @property
    def scope(self) -> str:
        return "cross" if _CROSS.search(self.home) else "self"


def find_structure(config: Config, shapes: Shapes) -> Structure:
    """Find attention, MLPs and embedding by the names and shapes of the tensors.

    Args:
        config: the content of ``config.json``: numbers of heads, and what sort of model it is.
        shapes: of every stored tensor.

    Raises:
        FamilyError: no layer has attention with queries, keys and values, or there are several encoders or decoders.
    """
    layers = _layers(shapes)
    containers = _containers(config, layers, shapes)
    first = layers[next(iter(containers.values()))]
    d_model = _width(first[min(first)], config)
    body: list[Site] = []
    for stack, container in containers.items():
        for layer, matrices in sorted(layers[container].items()):
            body += _layer_sites(f"{container}.{layer}.", stack, layer, matrices, config, d_model)
    inside = tuple(f"{container}." for container in containers.values())
    outside = {name: shape for name, shape in shapes.items() if not name.startswith(inside)}
    found = (*embedding_sites(outside, config, d_model), *body)
    return Structure(found, containers, d_model, _in_words(layers, containers, found))


def _layers(shapes: Shapes) -> dict[str, dict[int, Shapes]]:
    """Matrices by what holds numbered modules, number, and name below it; the first number of a name counts."""
    found: dict[str, dict[int, Shapes]] = {}
    for name, shape in shapes.items():
        match = re.match(r"^(.*?)\.(\d+)\.(.+)$", name)
        if match and len(shape) == 2 and name.endswith(_WEIGHT):
            container, number, rest = match[1], int(match[2]), match[3].removesuffix(_WEIGHT)
            found.setdefault(container, {}).setdefault(number, {})[rest] = shape
    return found


def _containers(config: Config, layers: Mapping[str, dict[int, Shapes]], shapes: Shapes) -> dict[Stack, str]:
    with_attention = [name for name, numbered in layers.items() if _attentions(numbered[min(numbered)], config, None)]
    if not with_attention:
        raise FamilyError(_nothing_found(config, shapes))
    found: dict[Stack, str] = {}
    for name in sorted(with_attention, key=lambda name: "decoder" in name):
        stack = _stack_of(name, config)
        if stack in found:
            raise FamilyError(
                f"two stacks of layers would be the {stack}, {found[stack]}.N and {name}.N: rankscope measures models "
                "of one encoder and one decoder; save one of them as a model of its own."
            )
        found[stack] = name
    return found


def _nothing_found(config: Config, shapes: Shapes) -> str:
    seen = Counter(pattern(name).replace("\\.", ".").replace("\\d+", "N").replace("\\", "") for name in shapes)
    names = sorted(seen, key=lambda name: (-seen[name], name))[:4]
    from rankscope.families import FAMILIES  # they are listed once this module is there

    return (
        f"model_type {config.get('model_type')!r} is not a family that rankscope knows ({', '.join(FAMILIES)}), and no "
        "attention was found by structure: looked for matrices like <layers>.N.….q_proj, k_proj, v_proj (or query, "
        f"key, value; or one qkv) of fitting shapes; found {', '.join(names) or 'no tensors'}."
    )


def _stack_of(name: str, config: Config) -> Stack:
    if "encoder" in name and "decoder" not in name:
        return "encoder"
    named = config.get("architectures")
    architectures = " ".join(map(str, named)) if isinstance(named, list) else ""
    causal = bool(re.search(r"CausalLM|LMHead", architectures)) or config.get("is_decoder") is True
    return "decoder" if "decoder" in name or causal else "encoder"


def _attentions(matrices: Shapes, config: Config, stack: Stack | None) -> list[_Attention]:
    """Attentions of one layer: self before cross."""
    found = [*_separate(matrices, config, stack), *_fused(matrices, config, stack)]
    return sorted(found, key=lambda one: (one.scope == "cross", one.home))


def _separate(matrices: Shapes, config: Config, stack: Stack | None) -> Iterator[_Attention]:
    homes: dict[str, dict[str, str]] = {}
    for name in matrices:
        home, _, leaf = name.rpartition(".")
        words = set(leaf.lower().split("_")) - _SUFFIXES
        for letter, spellings in _LETTERS.items():
            if words and words <= spellings:
                homes.setdefault(home, {})[letter] = name
    for home, found in homes.items():
        if set(found) != set("qkv"):
            continue
        q, k, v = (matrices[found[letter]] for letter in "qkv")
        heads = _head_count(config, stack)
        width = q[0] // heads if heads and q[0] % heads == 0 else None
        if q[1] == k[1] == v[1] or "cross" in home:
            names = _with_output({letter: found[letter] for letter in "qkv"}, matrices, home, q[1], q[0])
            yield _Attention(home, names, dict.fromkeys(names), False, heads if width else None, width)


def _fused(matrices: Shapes, config: Config, stack: Stack | None) -> Iterator[_Attention]:
    for name, shape in matrices.items():
        home, _, leaf = name.rpartition(".")
        if not _FUSED.match(leaf):
            continue
        transposed = shape[1] > shape[0]
        rows, columns = (shape[1], shape[0]) if transposed else shape
        heads = _head_count(config, stack)
        keys = _key_heads(config, heads)
        total = (heads or 1) + 2 * (keys or 1)
        if rows % total:
            continue
        width = rows // total
        if not _fits(config, width, heads, keys, rows == 3 * columns):
            continue
        parts = _parts(heads or 1, keys or 1, width, _interleaved(config, leaf))
        names = _with_output(dict.fromkeys("qkv", name), matrices, home, columns, (heads or 1) * width)
        # state-space models such as Mamba call theirs in_proj too
        if leaf.lower() == "in_proj" and ("o" not in names or (heads is None and rows != 3 * columns)):
            continue
        yield _Attention(home, names, {**parts, "o": None}, transposed, heads, width if heads else None)


def _fits(config: Config, width: int, heads: int | None, keys: int | None, square: bool) -> bool:
    """True if heads of a width are the config's; where it names none, if all of q, k and v are ``square`` matrices."""
    named = next((config[key] for key in _WIDTHS if isinstance(config.get(key), int)), None)
    if named is not None:
        return width == named
    return square or heads is None or keys != heads


def _parts(heads: int, keys: int, width: int, interleaved: bool) -> dict[str, Part | None]:
    if interleaved:
        # every head, or group of heads with shared keys, has its own q, k and v together
        share = heads // keys
        starts = {"q": (0, share * width), "k": (share * width, width), "v": ((share + 1) * width, width)}
        return {letter: Part(start, size, keys) for letter, (start, size) in starts.items()}
    q, kv = heads * width, keys * width
    return {"q": Part(0, q), "k": Part(q, kv), "v": Part(q + kv, kv)}


def _interleaved(config: Config, leaf: str) -> bool:
    """GPT-NeoX, BLOOM and Falcon (``query_key_value``) keep q, k and v of a head together, the others do not."""
    return leaf == "query_key_value" and config.get("model_type") not in ("chatglm", "glm")


def _with_output(names: dict[str, str], matrices: Shapes, home: str, d_model: int, inner: int) -> dict[str, str]:
    """Add the output matrix: below the attention, or below what holds it (BERT), by its name and its shape."""
    outer = home.rpartition(".")[0]
    for place in (home, outer):
        for name, shape in sorted(matrices.items()):
            inside = place and name.startswith(f"{place}.")
            words = {word for part in name.removeprefix(f"{place}.").split(".") for word in part.lower().split("_")}
            if inside and name not in names.values() and words & _OUTPUT and set(shape) == {d_model, inner}:
                return {**names, "o": name}
    return dict(names)


def _head_count(config: Config, stack: Stack | None) -> int | None:
    keys = (f"{stack or 'encoder'}_attention_heads", *_HEADS)
    return next((int(config[key]) for key in keys if isinstance(config.get(key), int)), None)


def _key_heads(config: Config, heads: int | None) -> int | None:
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    keys = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    return next((int(config[key]) for key in keys if isinstance(config.get(key), int)), heads)


def _width(matrices: Shapes, config: Config) -> int:
    """Width of the residual stream: what the queries read."""
    attention = _attentions(matrices, config, None)[0]
    return matrices[attention.names["q"]][0 if attention.transposed else 1]


def _layer_sites(
    prefix: str, stack: Stack, layer: int, matrices: Shapes, config: Config, d_model: int
) -> Iterator[Site]:
    attentions = _attentions(matrices, config, stack)
    homes: list[str] = []
    for one in attentions:
        homes += [one.home, *one.names.values()]
        yield from _attention_sites(prefix, stack, layer, one, matrices)
    transposed = any(one.transposed for one in attentions)
    rest = {name: shape for name, shape in matrices.items() if not _below(name, homes)}
    yield from _mlp_sites(prefix, stack, layer, rest, d_model, transposed)


def _below(name: str, homes: list[str]) -> bool:
    return any(home and (name == home or name.startswith(f"{home}.")) for home in homes)


def _attention_sites(prefix: str, stack: Stack, layer: int, one: _Attention, matrices: Shapes) -> Iterator[Site]:
    for letter, name in one.names.items():
        heads = one.heads
        part = one.parts[letter]
        if heads and one.width and letter in "kv":
            rows = part.width * part.groups if part else matrices[name][0]
            heads = rows // one.width
        yield Site(
            prefix + name + _WEIGHT,
            stack,
            layer,
            f"{one.scope}.{letter}",
            heads,
            one.width if heads else None,
            int(letter == "o") if heads else None,
            part=part,
            transposed=one.transposed,
        )


def _mlp_sites(
    prefix: str, stack: Stack, layer: int, matrices: Shapes, d_model: int, transposed: bool
) -> Iterator[Site]:
    """MLP of a layer: matrices from the residual stream to a hidden width, and one back."""
    turned = {name: shape[::-1] if transposed else shape for name, shape in matrices.items()}
    inner = [name for name, (rows, columns) in turned.items() if columns == d_model and rows != d_model]
    outer = [name for name, (rows, columns) in turned.items() if rows == d_model and columns != d_model]
    square = sorted((name for name, shape in turned.items() if shape == (d_model, d_model)), key=_by_number)
    if not inner and not outer and len(square) >= 2:
        outer = [name for name in square if _MLP_OUTPUT.search(name)][-1:] or square[-1:]
        inner = [name for name in square if name not in outer]
    if len(outer) != 1 or not inner:
        return
    hidden = turned[outer[0]][1]
    if len(inner) == 1 and turned[inner[0]][0] == 2 * hidden:
        for role, part in (("mlp_gate", Part(0, hidden)), ("mlp_in", Part(hidden, hidden))):
            yield Site(prefix + inner[0] + _WEIGHT, stack, layer, role, part=part, transposed=transposed)
    else:
        fitting = sorted((name for name in inner if turned[name][0] == hidden), key=_by_number)
        gates = [name for name in fitting if _GATE.search(name)] if len(fitting) > 1 else []
        for name in (*gates, *(name for name in fitting if name not in gates)):
            role = "mlp_gate" if name in gates else "mlp_in"
            yield Site(prefix + name + _WEIGHT, stack, layer, role, transposed=transposed)
    yield Site(prefix + outer[0] + _WEIGHT, stack, layer, "mlp_out", transposed=transposed)


def _by_number(name: str) -> list[tuple[int, str]]:
    """Sort ``ff.3`` before ``ff.10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _in_words(
    layers: Mapping[str, dict[int, Shapes]], containers: Mapping[Stack, str], sites: tuple[Site, ...]
) -> tuple[str, ...]:
    words = [f"{len(layers[container])} {stack} layers = {container}.N" for stack, container in containers.items()]
    shown: dict[str, str] = {}
    for site in sites:
        key = site.role if site.layer is None or len(containers) == 1 else f"{site.stack} {site.role}"
        shown.setdefault(key, _stored_as(site, sites, containers))
    words += [f"{key} = {name}" for key, name in shown.items()]
    heads = sorted(
        {site.heads for site in sites if site.kind == "attention" and site.role.endswith("q") and site.heads}
    )
    words.append(
        f"heads = {', '.join(map(str, heads))}" if heads else "heads = unknown, config.json names no number of them"
    )
    if not any(site.kind == "embedding" for site in sites):
        words.append("embedding = none found")
    return tuple(words)


def _stored_as(site: Site, sites: tuple[Site, ...], containers: Mapping[Stack, str]) -> str:
    name = site.module
    if site.layer is not None:
        name = f"N{name.removeprefix(f'{containers[site.stack]}.{site.layer}')}"
    together = [other for other in sites if other.name == site.name]
    part = f" (part {together.index(site) + 1} of {len(together)})" if site.part else ""
    return f"{name}{part}{' (transposed)' if site.transposed else ''}"
