"""Files that were cut, changed or made up: a good result, or a ValueError or OSError that names the
file, and no memory."""

import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import gaussian, quadratic

import zerovar as zv
from zerovar.adapters import files

TIMES = int(os.environ.get("ZEROVAR_FUZZ", "1"))  # `make fuzz` looks longer
MOST = 30 * 2**20  # bytes: the files have a few thousand
X, S = gaussian(60, 2)

ARCHIVES = ["fit.zv", "answer.zv", "stored.npz", "packed.npz"]
TABLES, STAN = ["draws.csv", "scores.csv", "values.csv"], ["output_1.csv", "diagnostic_1.csv"]
FILES = ARCHIVES + TABLES + STAN

fuzz = settings(max_examples=100 * TIMES, deadline=None, derandomize=True, database=None)
place = st.floats(0, 1, exclude_max=True)
# what may happen to bytes: (what, where, how much or where else, which byte)
bytes_changed = st.lists(
    st.tuples(st.sampled_from(["cut", "set", "drop", "swap"]), place, place, st.integers(0, 255)),
    max_size=4,
)
leaves = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["zerovar.Kernel", "zerovar.Result"])
)
keys = st.sampled_from(
    ["array", "class", "fields", "enum", "member", "function", "list", "tuple", "dict", "value"]
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)
numbers = st.integers(-2, 2**60) | st.integers(-2, 40)
# what may happen to an archive whose sums are right: (what, which member, which other, …)
headers = st.builds(
    "{{'descr': {!r}, 'fortran_order': {}, 'shape': {}, }}".format,
    st.sampled_from(
        [
            "<f8",
            "<U0",
            "<U9",
            "|O",
            "|V0",
            "<c16",
            "<f2",
            "?",
            "<m8[s]",
            [("a", "<f8")],
            "nonsense",
            3,
        ]
    ),
    st.booleans() | st.none(),
    st.lists(numbers, max_size=3).map(tuple) | st.just("(1,") | st.just("(" * 300),
)
members_changed = st.lists(
    st.tuples(st.just("swap"), place, place)
    | st.tuples(st.just("drop"), place, place)
    | st.tuples(st.just("header"), place, headers)
    | st.tuples(st.just("bytes"), place, bytes_changed)
    | st.tuples(st.just("json"), place, anything),
    max_size=3,
)


def with_bytes_changed(content, changes):
    for what, where, other, byte in changes:
        start, end = sorted((int(where * len(content)), int(other * len(content))))
        if what == "cut":
            content = content[:start]
        elif what == "set" and content:
            content = content[:start] + bytes([byte]) + content[start + 1 :]
        elif what == "drop":
            content = content[:start] + content[start + (end - start) // 8 :]
        elif what == "swap":
            content = content[end:] + content[start:end] + content[:start]
    return content


def with_json_changed(tree, where, new):
    """A part of a tree, found by going down, in place of which there is another."""
    keys = (
        list(tree)
        if isinstance(tree, dict)
        else list(range(len(tree)))
        if isinstance(tree, list)
        else []
    )
    if not keys or where > 0.97:
        return new
    at = where * len(keys)
    key = keys[int(at)]
    tree[key] = with_json_changed(tree[key], at % 1, new)
    return tree


def with_members_changed(content, changes, method):
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    tree = (
        json.loads(str(np.load(io.BytesIO(members["header.npy"]))))
        if "header.npy" in members
        else None
    )
    for what, where, other in changes:
        if not members:
            break
        names = list(members)
        name = names[int(where * len(names))]
        if what == "swap":
            second = names[int(other * len(names))]
            members[name], members[second] = members[second], members[name]
        elif what == "drop":
            del members[name]
        elif what == "header":
            head = other.encode()
            members[name] = (
                members[name][:8] + len(head).to_bytes(2, "little") + head + members[name][128:]
            )
        elif what == "bytes":
            members[name] = with_bytes_changed(members[name], other)
        elif tree is not None:
            tree, changed = with_json_changed(tree, where, other), io.BytesIO()
            np.save(changed, np.array(json.dumps(tree)))
            members["header.npy"] = changed.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return out.getvalue()


def must_be_read_or_refused(read, paths):
    refused = None
    tracemalloc.start()
    try:
        read()
    except (ValueError, OSError) as error:
        refused = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused is None or any(str(path) in refused for path in paths), refused
    assert "MemoryError" not in (refused or "")
    assert peak < MOST


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good files of every kind."""
    folder = tmp_path_factory.mktemp("good")
    zv.fit(zv.Polynomial(2) + zv.Kernel(), zv.Sample(X, S), X).save(folder / "fit.zv")
    quadratic(*gaussian(200, 2), names=["a", "b"]).save(folder / "answer.zv")
    arrays = {
        "draws": X,
        "scores": S,
        "values": X,
        "names": ["a", "b"],
        "log_weights": np.zeros(60),
    }
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)
    chain = np.repeat([1, 2], 30)
    for name, table in (("draws", X), ("scores", S), ("values", X)):
        columns = np.column_stack([chain, table])
        np.savetxt(
            folder / f"{name}.csv",
            columns,
            delimiter=",",
            header="chain,x,y",
            comments="",
            fmt="%.6g",
        )
    lines = ["# stan_version_major = 2", "# num_warmup = 5", "# save_warmup = 1", "# thin = 1"]
    for name, columns, numbers in (
        ("output", "lp__,x,y", np.column_stack([X[:, 0], X])),
        ("diagnostic", "lp__,x,y,p_x,p_y,g_x,g_y", np.column_stack([X[:, 0], X, S, -S])),
    ):
        rows = [",".join(f"{cell:.5g}" for cell in row) for row in numbers]
        (folder / f"{name}_1.csv").write_text("\n".join([*lines, columns, *rows]) + "\n")
    (folder / "changed").mkdir()
    return folder


def reader(path):
    """How a file is read, the good ones of its kind beside it; and the names that a message may
    give."""
    if path.suffix == ".zv":
        return lambda: zv.load(path), [path]
    kinds = (TABLES, STAN, [path.name])
    paths = [
        path if name == path.name else path.parent.parent / name
        for name in next(kind for kind in kinds if path.name in kind)
    ]
    given = (paths[:1], *paths[1:]) if path.name in TABLES else (paths,)
    return lambda: files.read(*given), paths


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_good(name, folder):
    path = folder / "changed" / name
    path.write_bytes((folder / name).read_bytes())
    reader(path)[0]()


@fuzz
@given(name=st.sampled_from(FILES), changes=bytes_changed)
def test_changed_bytes(name, changes, folder):
    path = folder / "changed" / name
    path.write_bytes(with_bytes_changed((folder / name).read_bytes(), changes))
    must_be_read_or_refused(*reader(path))


@fuzz
@given(
    name=st.sampled_from(ARCHIVES),
    changes=members_changed,
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_changed_members(name, changes, method, folder):
    path = folder / "changed" / name
    path.write_bytes(with_members_changed((folder / name).read_bytes(), changes, method))
    must_be_read_or_refused(*reader(path))


@pytest.mark.filterwarnings("ignore:The data type")  # Zarr's, of strings
@pytest.mark.parametrize("kept", [0.3, 0.9])
@pytest.mark.parametrize("kind", ["trace.nc", "trace.zarr"])
def test_cut_traces(kind, kept, tmp_path):
    """Lightly: the libraries that read these are not ours. Every file of a store is cut in turn."""
    import xarray as xr

    free = (("chain", "draw", "part"), X.reshape(2, 30, 2))
    stats = xr.Dataset({"unconstrained_draw": free, "gradient": free})
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"f": free}), "sample_stats": stats})
    path = tmp_path / kind
    if path.suffix == ".nc":
        tree.to_netcdf(path, engine="h5netcdf")
    else:
        tree.to_zarr(path, consolidated=False)
    files.read([path])
    for part in (
        [path] if path.is_file() else [part for part in sorted(path.rglob("*")) if part.is_file()]
    ):
        whole = part.read_bytes()
        part.write_bytes(whole[: int(kept * len(whole))])
        must_be_read_or_refused(lambda: files.read([path]), [path])
        part.write_bytes(whole)
