// What a client knows of the flights, from the packets that it was handed: read from its gateway with the product's client.
import { connect } from "./skymesh.js";

/** Seconds of the feed: it speaks of a flight once a minute, and of one over the ocean once in 45 minutes. */
const KEEP = 5 * 60;
const KEEP_SPARSE = 50 * 60;
const MOST = 4000;
const MOST_NUMBERS = 1200;

/** When packets were due, by their numbers: the demo tells the time of some, and the rest lie between them. */
class Calendar {
  #numbers = []; // [AN, seconds of the demo's clock], rising

  add(numbers) {
    for (const pair of numbers) {
      if (!this.#numbers.length || pair[0] > this.#numbers.at(-1)[0]) this.#numbers.push(pair);
    }
    if (this.#numbers.length > MOST_NUMBERS) this.#numbers.splice(0, this.#numbers.length - MOST_NUMBERS);
  }

  /** Null for a packet from before all that is known. `now` for one from after it. */
  timeOf(an, now) {
    const known = this.#numbers;
    if (!known.length || an < known[0][0]) return null;
    let [low, high] = [0, known.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (known[middle][0] <= an) low = middle; else high = middle;
    }
    if (high === known.length) return Math.max(now, known[low][1]);
    const share = (an - known[low][0]) / (known[high][0] - known[low][0]);
    return known[low][1] + share * (known[high][1] - known[low][1]);
  }
}

export class Flights {
  #parser = new DOMParser();
  #flights = new Map();
  #rows = [];
  #gone = new Set();
  #sweptAt = 0;
  #client = null;
  #stream = null;
  #isNew = true;
  #calendar = new Calendar();

  constructor(clock) {
    this.clock = clock;
    this.speed = 1;
  }

  get isWatching() { return this.#client !== null; }

  /** Follow what a client is handed, from as far back as its gateway remembers. */
  watch(client, token) {
    if (client === this.#client) return;
    this.#client = client;
    this.#stream?.close();
    this.#flights.clear();
    this.#rows = [];
    this.#gone.clear();
    this.#isNew = true;
    this.#stream = connect(location.origin, client, { token, after: 0, onPacket: (packet) => this.#take(packet) });
  }

  learn(numbers) { this.#calendar.add(numbers); }

  /** What has changed since the last call, for the map; null for nothing. Called with every frame. */
  changes() {
    this.#forget();
    if (!this.#isNew && !this.#rows.length && !this.#gone.size) return null;
    const found = { full: this.#isNew, rows: this.#rows, gone: [...this.#gone] };
    this.#isNew = false;
    this.#rows = [];
    this.#gone.clear();
    return found;
  }

  /** The client asks for something else: what that would not have brought goes. */
  only(query) {
    for (const flight of this.#flights.values()) {
      if (!matches(flight.document, query)) this.#drop(flight.callsign);
    }
  }

  #take(packet) {
    const seen = this.#calendar.timeOf(packet.an, this.clock());
    if (seen === null || !packet.xml?.includes("<flight>")) return;
    const document = this.#parser.parseFromString(packet.xml, "text/xml");
    const callsign = value(document, "flight > id");
    const leg = document.querySelector("flight > flightleg");
    if (!callsign || !leg) return;
    if (leg.getAttribute("status") === "arrived") {
      this.#drop(callsign);
      return;
    }
    let flight = this.#flights.get(callsign);
    if (!flight) {
      if (this.#flights.size >= MOST) return;
      flight = { callsign, lat: null, lon: null, altitude: 0, knots: 0, origin: "", destination: "", aircraft: "", keep: KEEP };
      this.#flights.set(callsign, flight);
    }
    Object.assign(flight, { document, seen });
    read(flight, document, leg);
    if (flight.lat === null) return;
    const { lat, lon, altitude, knots, origin, destination, aircraft } = flight;
    this.#rows.push([callsign, lat, lon, altitude, knots, origin, destination, aircraft, seen]);
  }

  #forget() {
    const now = this.clock();
    if (now - this.#sweptAt < 1) return;
    this.#sweptAt = now;
    for (const flight of this.#flights.values()) {
      if ((now - flight.seen) * this.speed > flight.keep) this.#drop(flight.callsign);
    }
  }

  #drop(callsign) {
    if (!this.#flights.delete(callsign)) return;
    this.#rows = this.#rows.filter((row) => row[0] !== callsign);
    this.#gone.add(callsign);
  }
}

function read(flight, document, leg) {
  flight.aircraft = value(document, "flight > aircraft") || flight.aircraft;
  flight.origin = value(leg, ":scope > departure") || flight.origin;
  flight.destination = value(leg, ":scope > destination") || flight.destination;
  const route = value(leg, ":scope > route").split("..");
  if (route.length > 1) [flight.origin, flight.destination] = [route[0], route.at(-1)];
  const altitude = value(leg, ":scope > altitude");
  const speed = value(leg, ":scope > speed");
  if (altitude) flight.altitude = Number(altitude) || 0;
  if (speed && leg.getAttribute("status") !== "planned") flight.knots = Number(speed) || 0;
  let place = leg.querySelector(":scope > coordinate");
  if (place) {
    flight.keep = KEEP;
  } else {
    place = leg.querySelector(":scope > boundary > coordinate");
    if (!place || flight.lat !== null) return; // where it will enter the next centre: we know better where it is
    flight.keep = KEEP_SPARSE;
  }
  const [lat, lon] = [degrees(value(place, "lat")), degrees(value(place, "lon"))];
  if (lat !== null && lon !== null) Object.assign(flight, { lat, lon });
}

const value = (node, selector) => node.querySelector(selector)?.textContent.trim() ?? "";

/** `4006N` or `07651W` in degrees; null for anything else. */
export function degrees(text) {
  const parts = /^(\d{2,3})(\d{2})([NSEW])$/.exec(text);
  if (!parts) return null;
  const found = Number(parts[1]) + Number(parts[2]) / 60;
  return parts[3] === "S" || parts[3] === "W" ? -found : found;
}

/** A browser knows XPath 1.0. What it can't read takes everything away, and the next minute brings it back. */
function matches(document, query) {
  try {
    return document.evaluate(`boolean(${query || "true()"})`, document, null, XPathResult.BOOLEAN_TYPE).booleanValue;
  } catch {
    return false;
  }
}
