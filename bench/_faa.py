"""Documents in the shape of the FAA's SWIM feeds (TFMData, SFDPS, ASDE-X), and queries over them, seeded.

They have what the ATC stream does not: namespaces, many records in one document, up to 90 KB, and clients that know no
more of the schema than a name, and write `//`.
"""

from __future__ import annotations

import random

from bench._flights import AIRLINES, AIRPORTS, CENTERS, FIXES, TYPES

NAMESPACES = {
    "ds": "urn:us:gov:dot:faa:atm:tfm:tfmdataservice",
    "fdm": "urn:us:gov:dot:faa:atm:tfm:flightdata",
    "nxce": "urn:us:gov:dot:faa:atm:tfm:tfmdatacoreelements",
    "nxcm": "urn:us:gov:dot:faa:atm:tfm:flightdatacommonmessages",
    "nas": "http://www.faa.aero/nas/3.0",
    "sme": "urn:us:gov:dot:faa:atm:terminal:entities:smes:surfacemovementevent",
}
_XSI = "http://www.w3.org/2001/XMLSchema-instance"


def documents(seed: int, number: int) -> list[bytes]:
    """A mixture: many of 5 to 15 KB, some of 40 to 90."""
    rng = random.Random(seed)
    return [_document(rng).encode() for _ in range(number)]


def _document(rng: random.Random) -> str:
    kind = rng.choice([_tfm, _tfm, _sfdps, _asdex, _asdex])
    return kind(rng, rng.choice([4, 5, 6, 8, 8, 40]))


def _flight_id(rng: random.Random) -> str:
    return f"{rng.choice(AIRLINES)}{rng.randint(1, 400)}"


def _stamp(rng: random.Random) -> str:
    return f"2016-01-28T22:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}Z"


# --- TFMData ---


def _tfm(rng: random.Random, records: int) -> str:
    bound = "".join(f' xmlns:{prefix}="{NAMESPACES[prefix]}"' for prefix in ("ds", "fdm", "nxce", "nxcm"))
    inside = "".join(_tfm_message(rng) for _ in range(records))
    return (
        f'<ds:tfmDataService{bound} xmlns="{NAMESPACES["ds"]}">\n  <fltdOutput>\n{inside}  </fltdOutput>\n'
        "</ds:tfmDataService>"
    )


def _tfm_message(rng: random.Random) -> str:
    kind, body = rng.choice(
        [
            ("trackInformation", _track),
            ("trackInformation", _track),
            ("boundaryCrossingUpdate", _crossing),
            ("flightPlanAmendmentInformation", _amendment),
        ]
    )
    flight = _flight_id(rng)
    return (
        f'    <fdm:fltdMessage airline="{flight[:3]}" fdTrigger="HCS_MSG" flightRef="{rng.randint(10**7, 10**8)}" '
        f'msgType="{kind}" sensitivity="A" sourceFacility="{rng.choice(CENTERS)}" sourceTimeStamp="{_stamp(rng)}">\n'
        f"      <fdm:{kind}>\n{_qualified(rng, flight)}{body(rng)}      </fdm:{kind}>\n    </fdm:fltdMessage>\n"
    )


def _qualified(rng: random.Random, flight: str) -> str:
    return (
        f"        <nxcm:qualifiedAircraftId>\n          <nxce:aircraftId>{flight}</nxce:aircraftId>\n"
        f"          <nxce:computerId>\n            <nxce:facilityIdentifier>{rng.choice(CENTERS)}"
        f"</nxce:facilityIdentifier>\n            <nxce:idNumber>{rng.randint(100, 999)}</nxce:idNumber>\n"
        f"          </nxce:computerId>\n          <nxce:gufi>KW{rng.randint(10**7, 10**8)}</nxce:gufi>\n"
        f"          <nxce:igtd>{_stamp(rng)}</nxce:igtd>\n          <nxce:departurePoint>\n            <nxce:airport>"
        f"{rng.choice(AIRPORTS)}</nxce:airport>\n          </nxce:departurePoint>\n          <nxce:arrivalPoint>\n"
        f"            <nxce:airport>{rng.choice(AIRPORTS)}</nxce:airport>\n          </nxce:arrivalPoint>\n"
        "        </nxcm:qualifiedAircraftId>\n"
    )


def _altitude(rng: random.Random, name: str) -> str:
    return (
        f"        <nxcm:{name}>\n          <nxce:assignedAltitude>\n            <nxce:simpleAltitude>"
        f"{rng.randint(0, 450):03}</nxce:simpleAltitude>\n          </nxce:assignedAltitude>\n        </nxcm:{name}>\n"
    )


def _track(rng: random.Random) -> str:
    return (
        f"        <nxcm:speed>{rng.randint(80, 560)}</nxcm:speed>\n{_altitude(rng, 'reportedAltitude')}"
        f'        <nxcm:position>\n          <nxce:latitude>\n            <nxce:latitudeDMS degrees="'
        f'{rng.randint(24, 50)}" direction="NORTH" minutes="{rng.randint(0, 59):02}"/>\n          </nxce:latitude>\n'
        f'          <nxce:longitude>\n            <nxce:longitudeDMS degrees="{rng.randint(65, 125):03}" '
        f'direction="WEST" minutes="{rng.randint(0, 59):02}"/>\n          </nxce:longitude>\n'
        f"        </nxcm:position>\n        <nxcm:timeAtPosition>{_stamp(rng)}</nxcm:timeAtPosition>\n"
        f'        <nxcm:ncsmTrackData>\n          <nxcm:eta etaType="ESTIMATED" timeValue="{_stamp(rng)}"/>\n'
        f'          <nxcm:nextEvent latitudeDecimal="{rng.uniform(24, 50):.6f}" longitudeDecimal="'
        f'{rng.uniform(-125, -65):.6f}"/>\n        </nxcm:ncsmTrackData>\n'
    )


def _crossing(rng: random.Random) -> str:
    return (
        f'        <nxcm:flightAircraftSpecs equipmentQualifier="L">{rng.choice(TYPES)}</nxcm:flightAircraftSpecs>\n'
        f"        <nxcm:speed>\n          <nxce:filedTrueAirSpeed>{rng.randint(80, 560)}</nxce:filedTrueAirSpeed>\n"
        f'        </nxcm:speed>\n        <nxcm:boundaryPosition boundaryCrossingTime="{_stamp(rng)}">\n'
        f'          <nxce:fixRadialDistance distance="{rng.randint(0, 99):03}" radial="{rng.randint(0, 359):03}">'
        f"{rng.choice(FIXES)}</nxce:fixRadialDistance>\n        </nxcm:boundaryPosition>\n"
        f"{_altitude(rng, 'reportedAltitude')}{_route(rng, 'routeOfFlight')}"
    )


def _amendment(rng: random.Random) -> str:
    return (
        f'        <nxcm:amendmentData>\n        <nxcm:newFlightAircraftSpecs equipmentQualifier="L">{rng.choice(TYPES)}'
        f"</nxcm:newFlightAircraftSpecs>\n{_altitude(rng, 'newAltitude')}{_route(rng, 'newRouteOfFlight')}"
        "        </nxcm:amendmentData>\n"
    )


def _route(rng: random.Random, name: str) -> str:
    return f'        <nxcm:{name} legacyFormat="{"..".join(rng.choices(FIXES, k=rng.randint(2, 8)))}"/>\n'


# --- SFDPS ---


def _sfdps(rng: random.Random, records: int) -> str:
    inside = "".join(_nas_flight(rng) for _ in range(records))
    return (
        f'<nas:MessageCollection xmlns:nas="{NAMESPACES["nas"]}" xmlns:xsi="{_XSI}">\n{inside}</nas:MessageCollection>'
    )


def _nas_flight(rng: random.Random) -> str:
    flight, height = _flight_id(rng), rng.randint(20, 450) * 100
    place = f"{rng.uniform(24, 50):.6f} {rng.uniform(-125, -65):.6f}"
    return f"""  <message xsi:type="nas:FlightMessageType">
    <flight xsi:type="nas:NasFlightType" centre="{rng.choice(CENTERS)[1:]}" source="TH" timestamp="{_stamp(rng)}">
      <arrival xsi:type="nas:NasArrivalType" arrivalPoint="{rng.choice(AIRPORTS)}">
        <runwayPositionAndTime><runwayTime><estimated time="{_stamp(rng)}"/></runwayTime></runwayPositionAndTime>
      </arrival>
      <controllingUnit unitIdentifier="{rng.choice(CENTERS)[1:]}" sectorIdentifier="{rng.randint(1, 60):02}"/>
      <departure xsi:type="nas:NasDepartureType" departurePoint="{rng.choice(AIRPORTS)}">
        <runwayPositionAndTime><runwayTime><actual time="{_stamp(rng)}"/></runwayTime></runwayPositionAndTime>
      </departure>
      <enRoute xsi:type="nas:NasEnRouteType">
        <position positionTime="{_stamp(rng)}" reportSource="SURVEILLANCE">
          <actualSpeed><surveillance uom="KNOTS">{rng.randint(80, 560)}.0</surveillance></actualSpeed>
          <altitude uom="FEET">{height}.0</altitude>
          <position><location srsName="urn:ogc:def:crs:EPSG::4326"><pos>{place}</pos></location></position>
          <targetAltitude uom="FEET">{height}.0</targetAltitude>
          <trackVelocity><x uom="KNOTS">{rng.randint(-500, 500)}.0</x></trackVelocity>
        </position>
      </enRoute>
      <flightIdentification computerId="{rng.randint(100, 999)}" aircraftIdentification="{flight}"/>
      <flightStatus fdpsFlightStatus="{rng.choice(["ACTIVE", "ACTIVE", "PROPOSED", "COMPLETED"])}"/>
      <operator><operatingOrganization><organization name="{flight[:3]}"/></operatingOrganization></operator>
      <assignedAltitude><simple uom="FEET">{height}.0</simple></assignedAltitude>
      <flightPlan identifier="KK{rng.randint(10**7, 10**8)}"/>
    </flight>
  </message>
"""


# --- ASDE-X ---


def _asdex(rng: random.Random, records: int) -> str:
    inside = "".join(_report(rng) for _ in range(3 * records))
    return f'<asdexMsg xmlns="{NAMESPACES["sme"]}">\n  <airport>{rng.choice(AIRPORTS)}</airport>\n{inside}</asdexMsg>'


def _report(rng: random.Random) -> str:
    text = (
        f'  <positionReport full="{rng.choice(["true", "false"])}">\n    <time>{_stamp(rng)}</time>\n'
        f"    <track>{rng.randint(1, 4000)}</track>\n"
    )
    if rng.random() < 0.2:
        text += f"    <flightId>\n      <aircraftId>{_flight_id(rng)}</aircraftId>\n    </flightId>\n"
    if rng.random() < 0.8:
        text += (
            f"    <position>\n      <x>{rng.randint(-15000, 15000)}</x>\n      <y>{rng.randint(-15000, 15000)}</y>\n"
            f"      <latitude>{rng.uniform(35, 35.4):.12f}</latitude>\n"
            f"      <longitude>{rng.uniform(-81.2, -80.7):.12f}</longitude>\n"
            f"      <altitude>{rng.randint(0, 9000)}</altitude>\n    </position>\n"
        )
    if rng.random() < 0.5:
        text += (
            f"    <movement>\n      <speed>{rng.randint(0, 300)}</speed>\n      <heading>{rng.uniform(0, 360):.8f}"
            f"</heading>\n      <vx>{rng.randint(-90, 90)}.0</vx>\n    </movement>\n"
        )
    return text + "  </positionReport>\n"


# --- queries ---


def queries(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < number:
        found[_query(rng)] = None
    return list(found)


def _query(rng: random.Random) -> str:
    flight, airport, center = _flight_id(rng), rng.choice(AIRPORTS), rng.choice(CENTERS)
    south, west = round(rng.uniform(35, 35.35), 3), round(rng.uniform(-81.2, -80.75), 3)
    return rng.choice(
        [
            f"//nxce:aircraftId = '{flight}'",
            f"//nxce:aircraftId = '{flight}'",
            f"//nxce:arrivalPoint/nxce:airport = '{airport}' and //nxce:departurePoint/nxce:airport = "
            f"'{rng.choice(AIRPORTS)}'",
            f"//fdm:fltdMessage[@airline = '{flight[:3]}']//nxce:simpleAltitude > {rng.randint(0, 450)}",
            f"//fdm:fltdMessage[@sourceFacility = '{center}' and @msgType = 'trackInformation']"
            f"[.//nxcm:speed > {rng.randint(80, 560)}]",
            f"//nxcm:qualifiedAircraftId[nxce:arrivalPoint/nxce:airport = '{airport}']"
            f"[starts-with(nxce:aircraftId, '{flight[:3]}')]",
            f"//nxcm:nextEvent[@latitudeDecimal > {rng.randint(24, 49)} and @longitudeDecimal < "
            f"-{rng.randint(66, 125)}.5]",
            f"//flight[arrival/@arrivalPoint = '{airport}']/enRoute//altitude > {rng.randint(20, 450) * 100}",
            f"//flightIdentification/@aircraftIdentification = '{flight}'",
            f"//flight[@centre = '{center[1:]}'][operator//organization/@name = '{flight[:3]}']",
            f"//sme:positionReport[sme:position/sme:latitude > {south}][sme:position/sme:latitude < {south + 0.02:.3f}]"
            f"[sme:position/sme:longitude > {west}][sme:position/sme:longitude < {west + 0.02:.3f}]",
            f"/sme:asdexMsg[sme:airport = '{airport}']//sme:aircraftId = '{flight}'",
            f"/sme:asdexMsg/sme:positionReport[sme:movement/sme:speed > {rng.randint(50, 300)}]/sme:track = "
            f"{rng.randint(1, 4000)}",
            f"//sme:aircraftId = '{flight}'",
        ]
    )
