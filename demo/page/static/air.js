// The map: the flights of one client, extrapolated between reports.
import { OUTLINE, project } from "./outline.js";
import { colours, Sheet } from "./theme.js";

const TRAIL = 14;
const STOPS = { dark: ["#ff7b54", "#ffc857", "#7ddf8c", "#4cc3ff", "#b39bff"], light: ["#c83c12", "#a36a00", "#1d7d3c", "#0b66b8", "#6233c4"] };
const BUCKETS = 16;
const MILES_A_RADIAN = 3440.065;

export class AirView {
  constructor(stage, canvas, label, ramp, clock) {
    Object.assign(this, { stage, canvas, label, ramp, clock });
    this.sheet = new Sheet(canvas);
    this.buckets = Array.from({ length: BUCKETS }, () => []);
    this.ground = document.createElement("canvas");
    this.flights = new Map();
    this.airports = new Map();
    this.wanted = "";
    this.hovered = null;
    this.zoom = 1;
    this.centre = project(-96, 38.2);
    this.speed = 10;
    this.frames = 0;
    this.cost = 0;
    this.framesSince = performance.now();
    this.countBox = document.getElementById("flights");
    this.emptyBox = document.getElementById("map-empty");
    this.framesBox = document.getElementById("frames");
    this.restyle();
    this.listen();
  }

  hello(message) {
    this.speed = message.speed;
    this.airports = new Map(message.airports.map(([icao, lat, lon]) => [icao, project(lon, lat)]));
    this.stale = true;
  }

  restyle() {
    this.colours = colours();
    const stops = STOPS[document.documentElement.dataset.theme] ?? STOPS.dark;
    const pen = this.ramp.getContext("2d", { willReadFrequently: true });
    const gradient = pen.createLinearGradient(0, 0, 120, 0);
    stops.forEach((stop, index) => gradient.addColorStop(index / (stops.length - 1), stop));
    pen.fillStyle = gradient;
    pen.fillRect(0, 0, 120, 8);
    const pixels = pen.getImageData(0, 4, 120, 1).data;
    this.palette = Array.from({ length: BUCKETS }, (_, k) => {
      const x = Math.min(119, Math.round((k / (BUCKETS - 1)) * 119)) * 4;
      return `rgb(${pixels[x]},${pixels[x + 1]},${pixels[x + 2]})`;
    });
    this.stale = true;
  }

  update(message) {
    if (message.full) this.flights.clear();
    for (const callsign of message.gone) this.flights.delete(callsign);
    for (const [callsign, lat, lon, altitude, knots, origin, destination, aircraft, seen] of message.rows) {
      const [x, y] = project(lon, lat);
      let flight = this.flights.get(callsign);
      if (!flight) {
        flight = { callsign, x, y, vx: 0, vy: 0, seen, ex: 0, ey: 0, trail: [x, y] };
        this.flights.set(callsign, flight);
        this.head(flight, x, y, origin, destination, knots);
      } else if (seen > flight.seen) {
        const before = this.where(flight, this.clock());
        const elapsed = seen - flight.seen;
        if (x !== flight.x || y !== flight.y) {
          flight.vx = (x - flight.x) / elapsed;
          flight.vy = (y - flight.y) / elapsed;
          flight.trail.push(x, y);
          if (flight.trail.length > 2 * TRAIL) flight.trail.splice(0, 2);
        }
        Object.assign(flight, { x, y, seen });
        // The drawn position must not jump: the extrapolation error is corrected over one second.
        const after = this.where(flight, this.clock(), false);
        flight.ex = before[0] - after[0];
        flight.ey = before[1] - after[1];
      }
      Object.assign(flight, { altitude, knots, origin: origin || flight.origin, destination: destination || flight.destination, aircraft: aircraft || flight.aircraft });
      flight.bucket = Math.max(0, Math.min(BUCKETS - 1, Math.round((altitude / 400) * (BUCKETS - 1))));
    }
  }

  /** A flight seen once: towards where it goes, if that is known. */
  head(flight, x, y, origin, destination, knots) {
    const goal = this.airports.get(destination);
    if (!goal || !knots) return;
    const far = Math.hypot(goal[0] - x, goal[1] - y);
    if (far < 1e-6) return;
    const speed = ((knots / MILES_A_RADIAN) / 3600) * this.speed;
    flight.vx = ((goal[0] - x) / far) * speed;
    flight.vy = ((goal[1] - y) / far) * speed;
  }

  where(flight, now, withError = true) {
    const coasted = Math.max(0, now - flight.seen);
    const x = flight.x + flight.vx * coasted;
    const y = flight.y + flight.vy * coasted;
    return withError ? [x + flight.ex, y + flight.ey] : [x, y];
  }

  search(text) { this.wanted = text; }

  // --- drawing --------------------------------------------------------------------------------------------------------

  frame(now, seconds) {
    const { pen, width, height } = this.sheet;
    if (!width) return;
    const began = performance.now();
    if (this.sheet.fit() || this.stale) this.drawGround(width, height);
    pen.drawImage(this.ground, 0, 0, width, height);
    const scale = this.scale;
    const [cx, cy] = this.centre;
    const left = width / 2 - cx * scale;
    const top = height / 2 - cy * scale;
    const decay = Math.exp(-seconds * 3);
    const { buckets } = this;
    for (const flights of buckets) flights.length = 0;
    let found = null;
    for (const flight of this.flights.values()) {
      flight.ex *= decay;
      flight.ey *= decay;
      const coasted = Math.max(0, now - flight.seen);
      flight.sx = left + (flight.x + flight.vx * coasted + flight.ex) * scale;
      flight.sy = top + (flight.y + flight.vy * coasted + flight.ey) * scale;
      if (flight.sx < -20 || flight.sx > width + 20 || flight.sy < -20 || flight.sy > height + 20) continue;
      buckets[flight.bucket ?? 0].push(flight);
      if (this.wanted && flight.callsign.startsWith(this.wanted)) found = found ?? flight;
    }
    this.drawFlights(pen, buckets, left, top, scale);
    if (this.wanted) this.mark(pen, buckets);
    this.showLabel(this.hovered && this.flights.has(this.hovered) ? this.flights.get(this.hovered) : found, width);
    this.cost += performance.now() - began;
    this.count();
  }

  drawFlights(pen, buckets, left, top, scale) {
    const size = Math.min(7, 3.6 + this.zoom * 0.7);
    pen.lineWidth = 1;
    buckets.forEach((flights, bucket) => {
      if (!flights.length) return;
      pen.strokeStyle = pen.fillStyle = this.palette[bucket];
      pen.globalAlpha = 0.33;
      pen.beginPath();
      for (const flight of flights) {
        const { trail } = flight;
        pen.moveTo(left + trail[0] * scale, top + trail[1] * scale);
        for (let k = 2; k < trail.length; k += 2) pen.lineTo(left + trail[k] * scale, top + trail[k + 1] * scale);
        pen.lineTo(flight.sx, flight.sy);
      }
      pen.stroke();
      pen.globalAlpha = 1;
      pen.beginPath();
      for (const flight of flights) {
        const far = Math.hypot(flight.vx, flight.vy);
        if (!far) { // seen once, bound for nowhere that we know: a dot points nowhere
          pen.moveTo(flight.sx + size * 0.6, flight.sy);
          pen.arc(flight.sx, flight.sy, size * 0.6, 0, 7);
          continue;
        }
        const ux = flight.vx / far;
        const uy = flight.vy / far;
        pen.moveTo(flight.sx + ux * size * 1.3, flight.sy + uy * size * 1.3);
        pen.lineTo(flight.sx - ux * size - uy * size * 0.72, flight.sy - uy * size + ux * size * 0.72);
        pen.lineTo(flight.sx - ux * size * 0.5, flight.sy - uy * size * 0.5);
        pen.lineTo(flight.sx - ux * size + uy * size * 0.72, flight.sy - uy * size - ux * size * 0.72);
        pen.closePath();
      }
      pen.fill();
    });
  }

  mark(pen, buckets) {
    pen.strokeStyle = this.colours.accent;
    pen.fillStyle = this.colours.text;
    pen.lineWidth = 1.6;
    pen.font = "600 11px system-ui, sans-serif";
    const named = [];
    for (const flights of buckets) {
      for (const flight of flights) {
        if (!flight.callsign.startsWith(this.wanted)) continue;
        pen.beginPath();
        pen.arc(flight.sx, flight.sy, 10, 0, 7);
        pen.stroke();
        // A name that would lie on another is left out: zooming in makes room for it.
        const isFree = named.every(([x, y]) => Math.abs(x - flight.sx) > 72 || Math.abs(y - flight.sy) > 14);
        if (!isFree || named.length >= 25) continue;
        named.push([flight.sx, flight.sy]);
        pen.fillText(flight.callsign, flight.sx + 13, flight.sy + 4);
      }
    }
  }

  get scale() {
    return Math.min(this.sheet.width / 0.84, this.sheet.height / 0.52) * this.zoom;
  }

  drawGround(width, height) {
    this.stale = false;
    const { ground, colours: c } = this;
    ground.width = this.canvas.width;
    ground.height = this.canvas.height;
    const pen = ground.getContext("2d");
    pen.setTransform(ground.width / width, 0, 0, ground.height / height, 0, 0);
    const scale = this.scale;
    const put = ([x, y]) => [width / 2 + (x - this.centre[0]) * scale, height / 2 + (y - this.centre[1]) * scale];
    pen.fillStyle = c.map;
    pen.fillRect(0, 0, width, height);
    pen.strokeStyle = c.coast;
    pen.globalAlpha = 0.3;
    pen.lineWidth = 0.7;
    for (let lat = 15; lat <= 60; lat += 5) line(pen, Array.from({ length: 61 }, (_, k) => put(project(-170 + k * 2, lat))));
    for (let lon = -170; lon <= -50; lon += 5) line(pen, Array.from({ length: 10 }, (_, k) => put(project(lon, 15 + k * 5))));
    pen.globalAlpha = 1;
    pen.fillStyle = c.land;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const [lon, lat] of OUTLINE) pen.lineTo(...put(project(lon, lat)));
    pen.closePath();
    pen.fill();
    pen.stroke();
    pen.font = "10px system-ui, sans-serif";
    for (const [icao, place] of this.airports) {
      const [x, y] = put(place);
      pen.fillStyle = c.coast;
      pen.fillRect(x - 1.5, y - 1.5, 3, 3);
      if (this.zoom > 2.2 || ["KJFK", "KLAX", "KORD", "KMIA", "KDFW", "KSEA", "KDEN", "KATL", "KSFO"].includes(icao)) {
        pen.fillStyle = c.soft;
        pen.fillText(icao.slice(1), x + 4, y - 3);
      }
    }
  }

  showLabel(flight, width) {
    if (!flight) { this.label.hidden = true; return; }
    const lines = [
      `FL${String(flight.altitude).padStart(3, "0")}, ${flight.knots} kt`,
      flight.origin || flight.destination ? `${flight.origin || "?"} → ${flight.destination || "?"}` : "",
      flight.aircraft ?? "",
    ].filter(Boolean);
    const key = flight.callsign + lines.join();
    if (this.label.dataset.key !== key) {
      this.label.dataset.key = key;
      const name = document.createElement("b");
      name.textContent = flight.callsign;
      this.label.replaceChildren(name, lines.join(" · "));
    }
    this.label.hidden = false;
    const toLeft = flight.sx > width - 190;
    this.label.style.transform = `translate(${Math.round(flight.sx + (toLeft ? -14 : 14))}px, ${Math.round(flight.sy + 10)}px) translateX(${toLeft ? "-100%" : "0"})`;
  }

  count() {
    this.frames++;
    const now = performance.now();
    if (now - this.framesSince < 1000) return;
    this.countBox.textContent = this.flights.size;
    this.emptyBox.hidden = this.flights.size > 0 || document.body.dataset.ready !== "yes";
    const rate = Math.round((this.frames * 1000) / (now - this.framesSince));
    this.framesBox.textContent = `· ${rate} frames/s`;
    this.framesBox.dataset.rate = rate;
    this.framesBox.dataset.cost = (this.cost / this.frames).toFixed(2);
    this.frames = 0;
    this.cost = 0;
    this.framesSince = now;
  }

  // --- moving the map -------------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    let from = null;
    canvas.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { from = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (from && event.buttons) {
        this.move(from[0] - event.clientX, from[1] - event.clientY);
        from = [event.clientX, event.clientY];
      }
      this.hover(event.offsetX, event.offsetY);
    });
    canvas.addEventListener("pointerleave", () => { this.hovered = null; });
    canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoomBy(Math.exp(-event.deltaY / 400)); }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-40, 0], ArrowRight: [40, 0], ArrowUp: [0, -40], ArrowDown: [0, 40] };
      if (moves[event.key]) this.move(...moves[event.key]);
      else if (event.key === "+" || event.key === "=") this.zoomBy(1.3);
      else if (event.key === "-") this.zoomBy(1 / 1.3);
      else if (event.key === "0") { this.zoom = 1; this.centre = project(-96, 38.2); this.stale = true; }
      else return;
      event.preventDefault();
    });
  }

  move(dx, dy) {
    this.centre = [this.centre[0] + dx / this.scale, this.centre[1] + dy / this.scale];
    this.stale = true;
  }

  zoomBy(factor) {
    this.zoom = Math.max(0.4, Math.min(12, this.zoom * factor));
    this.stale = true;
  }

  hover(x, y) {
    let best = null;
    let nearest = 18;
    for (const flight of this.flights.values()) {
      const far = Math.hypot(flight.sx - x, flight.sy - y);
      if (far < nearest) { nearest = far; best = flight.callsign; }
    }
    this.hovered = best;
  }
}

function line(pen, points) {
  pen.beginPath();
  for (const point of points) pen.lineTo(...point);
  pen.stroke();
}
