"""The frozen statistics, the stages and the summary list (failure scenarios F2, F9)."""

from __future__ import annotations

import base64
import copy
import dataclasses
import inspect
import json
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from cprofiling import notebook
from cprofiling.counters import NO_COUNTERS
from cprofiling.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary, stats_from_row

FIRST_TEN = (
    "node_name", "stage", "count", "mean_ms", "median_ms", "std_ms", "min_ms", "max_ms", "total_ms", "last_ms",
)  # fmt: skip
WITH_DEFAULTS = (
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms",
    "error_count", "cancelled_count", "skipped_count", "dropped_count",
    "first_ms", "self_total_ms", "active_total_ms",
)  # fmt: skip
BEYOND_TIMES = (
    "gpu_count", "gpu_mean_ms", "gpu_p50_ms", "gpu_p99_ms", "gpu_total_ms", "queue_delay_ms", "gpu_reason",
    "counters", "launches", "memory", "sync_total_ms", "sync_count",
)  # fmt: skip
UNASKED: tuple[Any, ...] = (0, None, None, None, None, None, None, NO_COUNTERS, None, None, None, 0)
ROW: tuple[Any, ...] = (
    "blur", "train", 3, 2.0, 2.5, 0.5, 1.0, 3.0, 6.0, 3.0,
    2.5, 2.9, 2.95, 2.99, 2.999, 1, 2, 3, 4, 9.0, 5.0, None,
)  # fmt: skip
CORE_ROW = (*ROW, None)  # nothing was asked for beyond times
FIELDS = (*FIRST_TEN, *WITH_DEFAULTS, *BEYOND_TIMES)
ZEROS: tuple[Any, ...] = (0.0,) * 7
PROTOCOLS = range(6)

# pickle.dumps((NodeProfilingStats(*ROW), ExecutionStage.VAL), protocol) of the first version, for protocols 0 to 5,
# compressed and in base 85.
GOLDEN_PICKLES = (
    (
        "c-m#s%Z`H}6b9h^d6KRg1-0b?#>7oCnI>)tB5jyKAc#%p?dJ$Om(0fC$Kmn=2PvKZ<U!p5KhoJbhDAmfz!z|k(g%0bM%(*wjv~%*aie<O?V8"
        "A!AUPivZKAfEgB#wJjNl1eqNniYD>#h4hTh^>ZpEa)H_#7e!9`9m_c-$%?F@YkLR;_*QM$$ABxL~|#otK@%cpg*5?XRB5{-ICvSOX)8naMni"
        "zJiYYAR^UJWxEd)X>r-(M4ghHPAN6jF@Al(_ZH5BFlMS&a+L}DlAEzgcM0~5zCae&T`dmB-@HA1Q+-goKWb>^&Eti${00%cT~`kHR*@;{ukH"
        "zpvK_-a06Y1eA8izLog0Yab{(1{3klWRCVeQGU|u=-NoQC5C31o%TviEYG<$c3Msys{viyuO2Eq}c>9#DtqP7`+v34C"
    ),
    (
        "c-m#syH3L}6adgb3x)80zn@blgoGHF$bvjns(38fEZ1=>gJb794uXM^kARJzK>Pzg!43lwGZMBNpa>6%eXf0N-=t2d%C50yozOn0lDW|ZHA;"
        "sN)G5uhYIDJ5XD2tr<Y7}K?D*TxJV77DxK(grxWqVAt#d|A2>ne1l~btRz(7474uU}1rC5@b!C+jq<CZ8i)Zzi#wYfVChJ4>>!X*s*K2?P@5"
        "H>1t&5lw=Bu;Y}K~d0cK5xnr-VKbRs9FXFeb&V37&?6E(UkkS<LL0cSIL#r2^0;L>fS~fBAid6Xt8v65<zm~c<Oh$OOoyHI-UM|jO@Vc42o)"
        "dzLmP~bk^#fYxkudIGwZldb|E~^5(a*>UrMs=f~sG!*e`hnQ5&w?$&6b(HBp+iV;bf5G*NuvC$uoxmsNCEc?+VTT!QpRz14hsQO#Cx$a(X1x"
        "4HCMSKn>+W4m=t0<Z+gKlF&4Zmc+;k9Pb`v3bJT`^i1uH>2f;vuZp<BDB;Nd#;d*gS<T1KT@aQMa_%"
    ),
    (
        "c-m#syH3L}6adh)P2ZIAC{SKSVuGbYLLE9aOXVR_1$4<4xrtj@<YmXHx*)+&{sA_A0`U+01Un2!%t+X-X^ZfZ>vNrJ`zE(($BAe-#2yYt&6q"
        "(JmwKU#E`F^qiD;*HBy~g5Cst9@w1BU$1Lz}?v2;EkcnKxCmE|EXF+wCOV@4qkNKVF1m;{XE&5V`jGatdg_G3~2hBh0ru8&+iOB8{jt3*y#b"
        "%mBd=WR)SEZ3Gn=W|)%MCb}I3QEP3g$#PaE5N8L7bo#x%mlA4mWv`$>r80%?=hmb)HPt_&*f0s61vXyL5xSGZJ`@n-=~e2%MZC7SIL{4zrUW"
        "lPp?*)Gom!4_N+%WGi6mp$6(+f&qJ>AEi-LZL@%y!6wP&;cT}iL!zJA@b$RO{rnBqSfpM%ZB5NRTXwO@+3yhjdijASe@E9%9d%a}v|1arIkd"
        "rVR27U3xOJv{5@OQ`1BL`D*ctslb<f!=rsSu&L"
    ),
    (
        "c-m#syH3L}6adh)N#B(6C{SKSVuGbYLLE9aOXVR_1$4<4xrtj@I1eXI)ddNL@(-}_6NrD{C)i;?Vn)JtLR*BFT%YS)+c&vYZ95445hmChw;~"
        "2vRPOr@y7;w$B&wX=(aa6ao|q*?Q9QoF@}P^TYHEBwBymVJGsi<-VvJ}`#w>)`qj?$Ie(W(?FjTX^XD))C<wmp!bR`+Gu8SO;BuYTn(nMZXb"
        "%d5d_iagCEZ0^*_j6g{ROkxOi>Zny^BE+<t3Yq0E>1#V#00M{mWv`m`%Gx<?=gao)HR?N&gDq8Ep(mhgBXvgc7$$leV;X7E<faUTqSRE{{DL"
        "IJ-wP0&L|B1&`Nq#H!@~TbPRenA_O_9Zy8y$Dtd8^gJ7=PyrV*$&|lIWLzA~2;V`*g1L();MPv;`M%KI~yFjm}NwG1s8J?g;daoZ3|NkYuDY"
        "9dReQzMXc$w~-Dt~tZ2|bw6!z<dnr$?<Ht8SsX"
    ),
    (
        "c-mdjF-rq66ae7XyY^b7R>Z-{!AX}QNQX{!DGowW`vZ>jF0H{_awNIZMbM$0-qz=!n}0(55B>>P(Lrz)yk2v*`j(LIz3|>6H}2hAv5*C92C<"
        "R@#+ev4v>`?#Y;|Qw&vNZ$IKzWmyvBW~iZtm95>W)V&l81EO5Y9BYso0WM0y4?5e82k@FGftA89-}F4%t6h=wdj*J4?lFq8IcE)iSQv_F4^j"
        "2EveRw_ms!WXt<&ErIyzh&jPdHAng+_K^wWigkgmHT--%%x@JeX{#}{sCSpIemXUbsk?}ohl`jZ}%-iJs={WoYOG3HK^$;7RO6*pcX2*DlSw"
        "8Oyy(m*&%D1@`1my;<ioHNnqHBE>qp4e_4Qy&X@*?VN&$6@0cMtBf@cl7dXYn59h<EWB"
    ),
    (
        "c-mdjy-EW?5CGuB{9J;Z5wWncu+k<7k|I@Xf`t&&JixKJ+r-7a-D7tzq!F}8s_8No+W8XVJNOc|qJ>~Bc)8m%(P@_bW|o;@Zz^|h#X=ge=|@"
        "Tq8E0bD)P@+1u+@_RJ<GM9;v5fd@f!D`E|R1tNJtUN10E}cO7d=$Tq{NqCX&;au`qaA0w<(Ic%jCV<AUv14{5-1EL*H<6Qt64%_U@6P3QAh$"
        "RvAJvr;qC5T4nNHHQ;z{+3mv*5SW)QQL}hl*U3@R_+(^u#mQu_v!BQ`3E?O<n;aZ)O~z`b*hw9p53<y4W9^~a!!NX*1*+QEQ*#=0yj`{RmxB"
        "sGL?_LXNPn(<wI{}#ci8t5Z|ydU8Z{R;IaT4-3j$$!=&h^-!VrhjS0soUf>LyKk2rpWd"
    ),
)


@pytest.fixture
def summary() -> ProfilingSummary:
    return ProfilingSummary(
        [stats_from_row(CORE_ROW), NodeProfilingStats("b", "val", 0, *ZEROS)],
        skip_first_n=3,
        reasons=["no CUDA device"],
        internal_errors=2,
        cost_ns=48.5,
    )


def attributes(summary: ProfilingSummary) -> tuple[object, ...]:
    return summary.skip_first_n, summary.reasons, summary.internal_errors, summary.cost_ns


# --- ExecutionStage ---


@pytest.mark.parametrize("member", ExecutionStage)
def test_a_stage_is_its_value_in_every_respect(member: ExecutionStage) -> None:
    value = member.value
    assert str(member) == f"{member}" == f"{member:s}" == value
    assert f"{member:<12}|" == f"{value:<12}|"
    assert member == value
    by_str: dict[str, int] = {member: 1}
    assert by_str[value] == {value: 1}[member] == 1
    assert json.dumps(member) == json.dumps(value)
    assert ExecutionStage(value) is member


def test_the_stages_are_the_four_documented_ones() -> None:
    stages = {member.name: member.value for member in ExecutionStage}
    assert stages == {"TRAIN": "train", "VAL": "val", "TEST": "test", "INFERENCE": "inference"}
    with pytest.raises(ValueError, match="always"):
        ExecutionStage("always")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stage_survives_pickling_and_copying_as_the_same_object(protocol: int) -> None:
    for member in ExecutionStage:
        assert pickle.loads(pickle.dumps(member, protocol)) is member
        assert copy.copy(member) is copy.deepcopy(member) is member


# --- NodeProfilingStats ---


def test_the_fields_and_their_order_are_the_documented_ones() -> None:
    fields = dataclasses.fields(NodeProfilingStats)
    assert tuple(field.name for field in fields) == FIELDS
    without_default = [name for name in FIELDS if not hasattr(NodeProfilingStats, name)]
    assert tuple(without_default) == FIRST_TEN


def test_every_field_is_documented() -> None:
    documentation = inspect.getdoc(NodeProfilingStats) or ""
    for name in FIRST_TEN + WITH_DEFAULTS:
        assert documentation.count(f"\n    {name}: ") == 1, name


def test_the_first_ten_fields_make_one_and_the_rest_is_unknown_or_zero() -> None:
    stats = NodeProfilingStats(*ROW[:10])
    assert dataclasses.astuple(stats)[:10] == ROW[:10]
    assert stats == NodeProfilingStats(**dict(zip(FIRST_TEN, ROW[:10], strict=True)))
    for name in WITH_DEFAULTS:
        assert getattr(stats, name) == (0 if name.endswith("_count") else None), name
    with pytest.raises(TypeError, match="last_ms"):
        NodeProfilingStats(*ROW[:9])


@pytest.mark.parametrize(
    "make", [lambda: NodeProfilingStats(*ROW), lambda: stats_from_row(CORE_ROW)], ids=["init", "row"]
)
def test_it_is_frozen(make: Callable[[], NodeProfilingStats]) -> None:
    stats = make()
    for name in FIELDS:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(stats, name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(stats, name)
    assert dataclasses.astuple(stats) == (*ROW, *UNASKED)


def test_it_compares_and_hashes_by_all_fields() -> None:
    stats = NodeProfilingStats(*ROW)
    assert stats == NodeProfilingStats(*ROW)
    assert hash(stats) == hash(NodeProfilingStats(*ROW))
    assert len({stats, NodeProfilingStats(*ROW), dataclasses.replace(stats, stage=ExecutionStage.TRAIN)}) == 1
    for name in FIELDS:
        change: dict[str, Any] = {name: -1}
        assert dataclasses.replace(stats, **change) != stats, name
    as_tuple: object = ROW
    assert stats != as_tuple


def test_asdict_and_replace_work() -> None:
    stats = stats_from_row(CORE_ROW)
    assert dataclasses.asdict(stats) == dict(zip(FIELDS, ROW + UNASKED, strict=True))
    assert dataclasses.replace(stats, count=4).count == 4
    assert stats.count == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_survives_pickling(protocol: int) -> None:
    for stats in (NodeProfilingStats(*ROW), stats_from_row(CORE_ROW), NodeProfilingStats("\ud800\x00", "s", 1, *ZEROS)):
        restored = pickle.loads(pickle.dumps(stats, protocol))
        assert type(restored) is NodeProfilingStats
        assert restored == stats
        assert hash(restored) == hash(stats)
        assert type(restored.stage) is type(stats.stage)
    assert copy.deepcopy(stats) == copy.copy(stats) == stats


@pytest.mark.parametrize("golden", GOLDEN_PICKLES, ids=PROTOCOLS)
def test_pickles_of_earlier_versions_load(golden: str) -> None:
    stats, stage = pickle.loads(zlib.decompress(base64.b85decode(golden)))
    assert stats == NodeProfilingStats(*ROW)
    assert stage is ExecutionStage.VAL


def test_a_pickle_from_before_a_field_existed_gets_its_default() -> None:
    restored = object.__new__(NodeProfilingStats)
    restored.__dict__.update(zip(FIRST_TEN, ROW, strict=False))
    assert restored == NodeProfilingStats(*ROW[:10])
    assert pickle.loads(pickle.dumps(restored)).p999_ms is None


# --- stats_from_row ---


def test_a_row_makes_what_the_constructor_makes() -> None:
    stats = stats_from_row(CORE_ROW)
    assert type(stats) is NodeProfilingStats
    assert stats == NodeProfilingStats(*ROW)
    assert list(vars(stats)) == list(vars(NodeProfilingStats(*ROW)))
    assert repr(stats) == repr(NodeProfilingStats(ROW[0], ExecutionStage.TRAIN, *ROW[2:]))


def test_every_item_of_a_row_lands_in_its_own_field() -> None:
    row = tuple(f"item {index}" for index in range(22))
    assert dataclasses.astuple(stats_from_row((*row, None))) == (*row, *UNASKED)


@pytest.mark.parametrize("member", ExecutionStage)
def test_a_known_stage_becomes_its_member(member: ExecutionStage) -> None:
    for given in (member.value, member):
        assert stats_from_row((ROW[0], given, *CORE_ROW[2:])).stage is member


@pytest.mark.parametrize("stage", ["", "Train", "warm-up", "train ", "\ud800", "always"])
def test_any_other_stage_stays_the_str_it_is(stage: str) -> None:
    converted = stats_from_row((ROW[0], stage, *CORE_ROW[2:])).stage
    assert converted is stage
    assert type(converted) is str


@pytest.mark.parametrize("row", [(), ROW[:10], ROW, (*CORE_ROW, None)], ids=len)
def test_a_row_of_another_length_is_refused(row: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        stats_from_row(row)


# --- ProfilingSummary ---


def test_a_summary_is_a_list(summary: ProfilingSummary) -> None:
    members = [stats_from_row(CORE_ROW), NodeProfilingStats("b", "val", 0, *ZEROS)]
    assert isinstance(summary, list)
    assert summary == members
    assert members == summary
    assert summary != members[:1]
    assert repr(summary) == repr(members)
    assert summary[1:] == members[1:]
    assert sorted(summary, key=lambda stats: stats.count)[0].node_name == "b"


def test_a_summary_without_arguments_is_empty_and_has_nothing_to_say() -> None:
    summary = ProfilingSummary()
    assert summary == []
    assert attributes(summary) == (0, (), 0, None)


def test_a_summary_takes_any_iterables() -> None:
    summary = ProfilingSummary(map(stats_from_row, [CORE_ROW, CORE_ROW]), reasons=iter(["a", "b"]))
    assert len(summary) == 2
    assert summary.reasons == ("a", "b")


def test_only_the_members_are_positional() -> None:
    with pytest.raises(TypeError, match="positional"):
        ProfilingSummary([], 3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, ProfilingSummary.copy]
    + [lambda summary, protocol=protocol: pickle.loads(pickle.dumps(summary, protocol)) for protocol in PROTOCOLS],
    ids=["copy.copy", "copy.deepcopy", "copy", *(f"pickle{protocol}" for protocol in PROTOCOLS)],
)
def test_copies_of_a_summary_keep_its_attributes(
    summary: ProfilingSummary, duplicate: Callable[[ProfilingSummary], ProfilingSummary]
) -> None:
    copied = duplicate(summary)
    assert type(copied) is ProfilingSummary
    assert copied is not summary
    assert copied == summary
    assert attributes(copied) == attributes(summary) == (3, ("no CUDA device",), 2, 48.5)
    copied.clear()
    assert len(summary) == 2


def test_a_summary_shows_itself_with_all_it_knows(summary: ProfilingSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = notebook.summary_html(
        list(summary), skip_first_n=3, reasons=("no CUDA device",), internal_errors=2, cost_ns=48.5
    )
    assert summary._repr_html_() == expected
    assert "blur" in expected
    # Looked up at the call, so that merely importing the statistics does not load it.
    monkeypatch.setattr(notebook, "summary_html", lambda stats, **known: f"{len(stats)} {known}")
    assert summary._repr_html_() == (
        "2 {'skip_first_n': 3, 'reasons': ('no CUDA device',), 'internal_errors': 2, 'cost_ns': 48.5}"
    )
