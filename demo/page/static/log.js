// Events: latency percentiles with the faults marked, and a list of events.
import { colours, Sheet } from "./theme.js";

const WINDOW = 120;
const MAX_EVENTS = 120;
const MARKS = { fault: "bad", whole: "good", loss: "bad", heal: "cold" };

export class Log {
  constructor(canvas, list, caption, clock) {
    Object.assign(this, { canvas, list, caption, clock });
    this.sheet = new Sheet(canvas);
    this.seconds = [];
    this.marks = [];
    this.known = 0;
    this.said = "";
    this.drawn = 0;
    this.restyle();
  }

  restyle() { this.colours = colours(); this.drawn = 0; }

  hello(message) {
    this.seconds = message.timeline;
    this.list.replaceChildren();
    this.marks = [];
    this.known = 0;
    message.events.forEach((event) => this.event(event));
    if (!message.events.some((event) => event.kind === "story")) {
      this.caption.textContent = "Select a peer and kill it, or run the full story. A checker knows every published packet and counts what any client missed.";
    }
  }

  add(seconds) {
    const last = this.seconds.at(-1)?.[0] ?? -1;
    this.seconds.push(...seconds.filter((second) => second[0] > last));
    if (this.seconds.length > 700) this.seconds.splice(0, 100);
  }

  verdict(verdict) {
    this.caption.classList.toggle("kept", Boolean(verdict?.kept));
    this.caption.classList.toggle("broke", verdict !== null && verdict !== undefined && !verdict.kept);
  }

  event(event) {
    if (event.n <= this.known) return;
    this.known = event.n;
    if (event.kind === "story") this.caption.textContent = event.text;
    if (MARKS[event.kind]) this.marks.push([event.at, MARKS[event.kind]]);
    if (this.marks.length > 300) this.marks.splice(0, 100);
    const line = document.createElement("li");
    line.dataset.event = event.n;
    const time = document.createElement("time");
    time.textContent = `${event.at.toFixed(1)} s`;
    const text = document.createElement("span");
    text.className = event.kind;
    text.textContent = `${event.who} ${event.text}`.trim();
    line.append(time, text);
    this.list.prepend(line);
    while (this.list.children.length > MAX_EVENTS) this.list.lastChild.remove();
  }

  frame() {
    const now = this.clock();
    const { pen, width, height } = this.sheet;
    if (!width || (!this.sheet.fit() && now - this.drawn < 0.2)) return;
    this.drawn = now;
    const c = this.colours;
    pen.clearRect(0, 0, width, height);
    const shown = this.seconds.filter((second) => now - second[0] < WINDOW + 2);
    // Logarithmic from 1 ms to 10 s: a stall and a median fit into one picture.
    const y = (ms) => height - 14 - (Math.log10(Math.max(1, Math.min(10000, ms))) / 4) * (height - 24);
    const x = (at) => 34 + ((at - (now - WINDOW)) / WINDOW) * (width - 40);
    pen.font = "10px system-ui, sans-serif";
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const ms of [1, 10, 100, 1000, 10000]) {
      pen.strokeStyle = c.coast;
      pen.globalAlpha = 0.35;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(34, y(ms));
      pen.lineTo(width - 4, y(ms));
      pen.stroke();
      pen.globalAlpha = 1;
      pen.fillStyle = c.soft;
      pen.fillText(ms.toLocaleString("en"), 31, y(ms));
    }
    for (const [at, colour] of this.marks) {
      if (now - at > WINDOW) continue;
      pen.strokeStyle = c[colour];
      pen.globalAlpha = 0.55;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x(at), 6);
      pen.lineTo(x(at), height - 12);
      pen.stroke();
    }
    pen.globalAlpha = 1;
    for (const [column, colour, thick] of [[5, c.bad, 1], [4, c.warn, 1.3], [2, c.good, 2]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.beginPath();
      shown.forEach((second) => pen.lineTo(x(second[0]), y(second[column])));
      pen.stroke();
    }
  }
}
