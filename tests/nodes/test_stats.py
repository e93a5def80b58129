"""The frozen statistics, the stages and the summary list (failure scenarios F2, F9)."""

from __future__ import annotations

import base64
import copy
import dataclasses
import inspect
import json
import pickle
import zlib
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest

from cprofiling.nodes.resources import NO_COUNTERS
from cprofiling.nodes.stats import ExecutionStage, NodeProfilingStats, ProfilingSummary, stats_from_row
from cprofiling.report.notebook import summary as notebook

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
FIELDS = (*FIRST_TEN, *WITH_DEFAULTS, *BEYOND_TIMES)
untyped: Any = namedtuple  # noqa: PYI024 as the core's, without types
CORE_ROW: Any = untyped("CoreRow", (*FIRST_TEN, *WITH_DEFAULTS, "resources"))(*ROW, None)  # only times were asked for
ZEROS: tuple[Any, ...] = (0.0,) * 7
PROTOCOLS = range(6)

# pickle.dumps((NodeProfilingStats(*ROW), ExecutionStage.VAL), protocol) of the first version, for protocols 0 to 5,
# compressed and in base 85.
GOLDEN_PICKLES = (
    (
        "c-mEy&90j;5QX>iB&;H^4GHV2NZCYHuf*1JjFY+r+qKQr&D+;Mn9vQv-yCM<jE9PIZC=!hCxi#r%6YqTuPvAwD$b474>?Qqgqxnkk8=9(%sVg*"
        "a7yp1oV`?(g1-M2+=D@I^9I9DL!g>W3!@6(QpFYlri1Z5uOa;z+~_=e26lnbTP78lK0vNl6_PYHTyZ!qf+@PhVhs%FR3|ja0#Sr*$~9$zVW<;X"
        "<fb7oH2FjJl}QT&PQ+`^=FB=6y2NJYd`9OYGi{y8rIa)MM*2wlMA}49ok$k-8Ku_ytSSs;7NM|KTe=xX7_Lp615;egvzYb(fh&qm|43sFxXpu_"
        "to{#oa3ujhq}}YGV5d)ZoR}Z<Z5;(yZ3-~%<)=7?dbqjqY1Wb!hii$-i1w?&O;MFWVYHLYFUEzuvttt3-&L%FPGV-SOxvQgf;k=50(X(54up-0"
        "GaOd)6xYk0_Hf+PZ*T1ds<4H)2X9Cnm$FHByej@ngg8l^E@IL46;7#3_fq`OCLufAra;;>h5PXb`TiyN>ZMj6d8<hW)%eNg@OF;1FR^y)qOIZd"
        "50GXXUH"
    ),
    (
        "c-mEyOK;RL5XaN*w%evJ9tFy)KzW7NQb0ZQ)JUkxAyNd}i*J$F@h$<!&NxohJ@m+jfE!-|@g4XQ+~I)48426*c7qRz=QsA>GvjeUh$ttiq+?%y"
        "h~SlyHBmzP;01(~QjBtz^Rb_ZjJ}y#M+&RThdGj_!#Zaw=V|JT;d@Gy5A%tF&H%cnun?eS&-1w6nsQuFSVUcI4_PgthZgj-Qg}>Z$<CF;IfrFC"
        "C!*#G{J4X9+A1jKX;HyS6nf3Dx&_Vh#<3cOUFTS|s+pl{(ZP=vEpoedJv#W^ruf9rjVN4l)cloDm>GU93b!0LkuY2-gU`>F8<BEv*U$_9hf(fZ"
        "dNB%nuk3Ji&(KXxKbi5_(S1WNY5Mcy_P4jc>~We}d|Bhaf4&}m`HogJrcw%-HZ{5u&!G)dG0X{NjAo8+#q(&*)Z#;4mS^;;uBf4z6fJr!?%J$J"
        "xopzA9)&wD5vxJjC_O95jVRo7PIE9ODnF((_szs!&bX|d`gZKus12Fk<gEnx4!PRhZjmPGI|*8K<V<`gLF<}9O>3HFl;Me?cV~Mg#g*W2FR=;P"
        "0I00seyf%HrXQ>R)Mq>U_0)g|!6`gc5Degvm0-B$<Q=Wxanke)ErguFlccH4gp*lxPn$R_Y;u1Vd-bsWj1EsIsZ}ock?DLN`T^?bEytL_a|OEt"
        "c%k5B{~vm}1i}"
    ),
    (
        "c-mEyOK;RL5XaNqZMRKdJPMRo3oVb9$AW}<=&6xVl|!Tm+KX?In|PO~j+1ems(YvehvhrKjW2=t4txpja6saWgvasjhPlM^8~g8>@#K9gjtiOh"
        "Q=W=}8|DdnGxm-ZRiz8g?gyB;fYuIKa2!YI9g(0JgEr}C|Abc(I%HNaOGO6^X3bhjnhKaR>o~83f^N_zUF~IziYO~#-uIl^jBdt~v<@uzUdIOJ"
        "jB0|^^$&hDXqKA2i~hmyCZ*>{mwa#DQv9l1QI34s_tq`POgJqS;+5%k6e;#zB3=DIjbh)>OTO2AWz5n&q?a}Qg!b9eeWX`3{W;qB_V$;#PE&)g"
        "YW(-l*TXO0$)d(g%3MZukJf@2vWgv}B4(Vk#PVxFi!5U=PSc{8(CfORNE4Yi=#8Lbs_v(<E^poUwrn9rgYkYeX~|9BTeCsDn8qqSW7F`h&^*qd"
        "sI2<!z%f}P8NcM6khm7v-ra4Gy6BCNELk!U-wer$W>B$;MG50{i1gm{tYoyz1>6r!K_&qvOW0~mY!BzL?2Th)fM1Ut*uH=VBY1cOkBkDRm5AT5"
        "5*~;3xUejjL)Z!H#tcO~O>VbN!@#=qCxKI)G=G-Ea~4-B&BZYez6(!DTc0?i9G;Ef`4RL!!i(NNVGHq1"
    ),
    (
        "c-mEy&2H2%5XaN*w%ev(lolvoEtCRnfdvWm&{HF!Du+lBv=`qZH}NhJj+1ems(YvehvgmM#!DdHftTP82PDo&cpUF;m`gmrvHzYKPu{oUxR7}-"
        "<*DeqVV<zpBkxpERl4BpeSoP;nBFDxj^hZuBN8-Y&?0T^pYcjUo6P8Csc4_Uj9Dv5QvtJP9p{x$&<R?kqrHq#5oIOJ`JPjo(al(r)`5B7YumuA"
        "QB9D#{?U&H%~G>>!9V)lr1S#mqVLUFieHs0%8@Vm-iGCv38$q(ygb>CBE`WAq$~fYQ5+h2#rHZdjahntbXC(&XrC=TM0!=zpTo^>Z+@BUG&Oil"
        "<G+8t9)I~x7Bps3<}#{#v>r^673>%lG2@&imR}2|$rASBU0M`ldR=!EX(ICmy%Drc)xA{K<!$)hwk^bHFy4#CExGA?>o$lN(^#eFY!bc|n#buE"
        "l~unTI3{Z(qnErB64xTzySoii7rhyhMN7uwTOnE23@TQ!C}Erqklve|m5i3Tfcv2-$RxmI3EPc{?czL^-BHX8@T-vn4=!P62oF!-kx}5Z67gGB"
        "!sD<W7nbF60J~w`n1P5V$?er?7+9CSA2`)n^Jh7}U~#3=T%6+IyYPgx^oeuI;pq^boj~^^Jn#MkWNPtF"
    ),
    (
        "c-mc(zfT)66vtB%l1oB}gc#`3p;Nm=l_~}%Dxru0DFX5boSeItVAW?|Z66{75)5H_Tg(6({{&)W=bvDQp%ODv&lkJ7_AU1J^Pb-i>s{2YA6F`c"
        "VJk|d7*j_1#Nft2#Bk{KP!p}p+<d(>=jIDGdF~83Nx)!j#4>4cRcSKG<*Js1^8AcM#<e-9Vj}^<!$g_=9~D=rnLtcEtT|X$IxfiWvnL5%#O(h5"
        "OUT*cRp3aVg(hslwj66PqV&IE^>q8&f9290M;hM?vt-+m8*8_g>^Sl=`}A=1ijACj^!|3=zk9+qNGW9K=KX-(i0}v)gV?hb?5LkKO_!vKomh%8"
        "sbMgt(zpHDHQ7<X#$jp1P3P#6NYhhTx(3*sq?ylF!M0WY=Lgub(*1!~i$MmsW>qQC`mYQ!2xDMmT8fuIl;F7viXtGD!H>(8>Dir7y`^u>ZqS~W"
        "^L%k;=Gb7sNXDZRuzBkVBtlN}TSrZKRBobG06$JPI;r4#{|ur`Q^AMDuFVZrPYEm1UYXt>>$(2W"
    ),
    (
        "c-mc(zfT)66vxy2yaWOgVt|FAQ@cc!Duzs{R7D+-A|QXj$+>$8R(<x>_C;i<1VcK#EoOj?e*$&v&OgE44oICValY8iwQsS%pZENJSnsNF^P^fR"
        "3_DRO#gsD2X9o91B8F41$C_wmR_5)s`D)%^o9E7ulLQRbCoGc&8%mQ|E*n}B%JVZ48Q12dhOGn$4-;iReW<uf?F3@#Vco%|(s4lsPo5-n9W!|T"
        "OUUK=Rp3aVg(hsx4jgMSqV&IE&Gh))f92A?Bdzy^S#s>it+hK#`i}fu9(_Oig{_=;^yl}(@ct3EKuRG)H}5OljR=o`F^D~@Vpn~pX}Tdb?8Z`*"
        "NgabJmA>uQuF0+fHVsQ7?mNdWi8P(V#x=tBEX{nj3T|2De}04=E8QP>wH{=I+g6nl?R?1~gD?h07NvLzL<yd&peO=T89dyqOwaCw>TP`6c7r~8"
        "xyl!3Y0eD>jAT5z0Gqd&KqBNKzjf7uN986u1@Pl!lZy)O3@;(dG!=YY?App;ZBAH`_M7Rw0PchS(E"
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


@pytest.mark.parametrize("member", ExecutionStage)
def test_a_known_stage_becomes_its_member(member: ExecutionStage) -> None:
    for given in (member.value, member):
        assert stats_from_row(CORE_ROW._replace(stage=given)).stage is member


@pytest.mark.parametrize("stage", ["", "Train", "warm-up", "train ", "\ud800", "always"])
def test_any_other_stage_stays_the_str_it_is(stage: str) -> None:
    converted = stats_from_row(CORE_ROW._replace(stage=stage)).stage
    assert converted is stage
    assert type(converted) is str


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
