"""Lines of every message type with the packet each must become: the golden bytes of docs/asdi.md."""

from __future__ import annotations

_P = '<?xml version="1.0"?>'

GOLDEN: dict[str, str] = {
    # The paper's Figure 12.
    "153014022245CCZVTZ UAL1021 512 290 4928N/12003W": (
        '<flight><id>UAL1021</id><flightleg status="active"><speed type="ground">512</speed>'
        '<altitude type="reported" mode="plain">290</altitude>'
        "<coordinate><lat>4928N</lat><lon>12003W</lon></coordinate></flightleg></flight>"
    ),
    "7D6F16201541KZBWTZ EIN135/742 409 241C 4239N/06930W": (
        '<flight><id computer="742">EIN135</id><flightleg status="active"><speed type="ground">409</speed>'
        '<altitude type="reported" mode="modec">241</altitude>'
        "<coordinate><lat>4239N</lat><lon>06930W</lon></coordinate></flightleg></flight>"
    ),
    "A22B16191354KZBWFZ NGF23V/369 C172/U 0110 MVY P1830 040 MVY..FREDO..OWD/0040": (
        '<flight><id computer="369">NGF23V</id><aircraft equipment="U">C172</aircraft><flightleg status="planned">'
        '<speed type="filed">0110</speed><fix>MVY</fix><time type="proposed">1830</time>'
        '<altitude type="assigned" mode="plain">040</altitude><route time="0040">MVY..FREDO..OWD</route>'
        "</flightleg></flight>"
    ),
    "E5F216192956KZBWFZ EIN135 H/A332/W M081 4238N/06659W E1958 390 BANCS..XKANN..KANNI..SCUPP..BOS": (
        '<flight><id>EIN135</id><aircraft special="H" equipment="W">A332</aircraft><flightleg status="planned">'
        '<speed type="mach">081</speed><coordinate><lat>4238N</lat><lon>06659W</lon></coordinate>'
        '<time type="estimated">1958</time><altitude type="assigned" mode="plain">390</altitude>'
        "<route>BANCS..XKANN..KANNI..SCUPP..BOS</route></flightleg></flight>"
    ),
    "000101000000KZIDAF LOF3414/12A KIAD KCVG 03 E45X/L 05 0447 06 HVQ067064 07 E2301 08 320T 10 KIAD./.KCVG/2348": (
        '<flight><id computer="12A">LOF3414</id><flightleg status="amended"><departure>KIAD</departure>'
        '<destination>KCVG</destination><amendment field="03"><aircraft equipment="L">E45X</aircraft></amendment>'
        '<amendment field="05"><speed type="filed">0447</speed></amendment>'
        '<amendment field="06"><fix radial="067" distance="064">HVQ</fix></amendment>'
        '<amendment field="07"><time type="estimated">2301</time></amendment>'
        '<amendment field="08"><altitude type="assigned" mode="interim">320</altitude></amendment>'
        '<amendment field="10"><route time="2348">KIAD./.KCVG</route></amendment></flightleg></flight>'
    ),
    "0002311215 59KZNYUZ DAL88 H/B763/L 0460 4010N/07530W E1220 370 KJFK..RBV.J60.PSB..KLAX/0455".replace(" ", "", 1): (
        '<flight><id>DAL88</id><aircraft special="H" equipment="L">B763</aircraft><flightleg status="boundary">'
        '<speed type="filed">0460</speed><boundary><coordinate><lat>4010N</lat><lon>07530W</lon></coordinate>'
        '<time type="estimated">1220</time></boundary><altitude type="reported" mode="plain">370</altitude>'
        '<route time="0455">KJFK..RBV.J60.PSB..KLAX</route></flightleg></flight>'
    ),
    "000331121600KZNYDZ JBU915/301 A320/L KJFK D1214 KSFO 1801": (
        '<flight><id computer="301">JBU915</id><aircraft equipment="L">A320</aircraft><flightleg status="departed">'
        "<departure>KJFK</departure><destination>KSFO</destination>"
        '<time type="departed">1214</time><time type="arrival">1801</time></flightleg></flight>'
    ),
    "000431180300KZOAAZ JBU915 KJFK KSFO A1802": (
        '<flight><id>JBU915</id><flightleg status="arrived"><departure>KJFK</departure><destination>KSFO</destination>'
        '<time type="actual">1802</time></flightleg></flight>'
    ),
    "000531180301KZOARZ SKW5301/044 KSFO KACV": (
        '<flight><id computer="044">SKW5301</id><flightleg status="cancelled"><departure>KSFO</departure>'
        "<destination>KACV</destination></flightleg></flight>"
    ),
    "000631180302KZAKTO HAL51 480 31/1800 370 3510N/14000W KJFK PHNL 31/1900 380 3000N/14700W": (
        '<flight><id>HAL51</id><flightleg status="oceanic"><departure>KJFK</departure><destination>PHNL</destination>'
        '<speed type="ground">480</speed><time type="position" day="31">1800</time>'
        '<altitude type="reported" mode="plain">370</altitude>'
        "<coordinate><lat>3510N</lat><lon>14000W</lon></coordinate>"
        '<planned><time type="position" day="31">1900</time><altitude type="planned" mode="plain">380</altitude>'
        "<coordinate><lat>3000N</lat><lon>14700W</lon></coordinate></planned></flightleg></flight>"
    ),
    "000731180303KDCCHB": "<heartbeat/>",
    "000831180304KDCCRT UAL1 <any> & all": '<message type="RT">UAL1 &lt;any&gt; &amp; all</message>',
    "000931180305KDCCBZ UAL1 4721": '<message type="BZ">UAL1 4721</message>',
}
GOLDEN = {line: _P + xml for line, xml in GOLDEN.items()}
