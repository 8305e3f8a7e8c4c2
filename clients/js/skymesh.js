// A client of `skymesh gateway` for browsers and Node 22 (Node 20 with `WebSocket` from the package "ws").
//
//   import { connect } from "./skymesh.js";
//   const stream = connect("http://localhost:8080", "asdi", {
//     query: "/flight/flightleg/altitude > 300",
//     onPacket: packet => console.log(packet.an, packet.xml),
//     onGap: gap => console.log(`packets in (${gap.after}, ${gap.until}] are lost`),
//   });
//   stream.changeQuery("//coordinate");
//   stream.close();
//
// It reconnects by itself and resumes behind the last packet, so that nothing is lost that the gateway still has.

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 15_000;
const REFUSED = new Set([1003, 1008]);

const handlers = {
  packet: "onPacket", omitted: "onOmitted", gap: "onGap", started: "onStarted", switched: "onSwitched", error: "onError",
};

export function connect(gateway, stream, options = {}) {
  return new Stream(gateway, stream, options);
}

export class Stream {
  #url;
  #options;
  #socket = null;
  #retryMs = FIRST_RETRY_MS;
  #timer = null;
  #isClosed = false;
  #query;
  #namespaces;

  /** The AN behind which everything that matches was handed over; null before the stream has started. */
  position = null;

  constructor(gateway, stream, options) {
    this.#url = new URL(`/v1/${encodeURIComponent(stream)}/socket`, gateway);
    this.#url.protocol = this.#url.protocol === "https:" ? "wss:" : "ws:";
    this.#options = options;
    this.#query = options.query ?? "";
    this.#namespaces = options.namespaces ?? {};
    this.position = options.after ?? null;
    this.#open();
  }

  /** Want other packets, from the next one on. `onSwitched` says from where; `onError` says why not. */
  changeQuery(query, namespaces = this.#namespaces) {
    this.#query = query;
    this.#namespaces = namespaces;
    if (this.#socket?.readyState === 1) {
      this.#socket.send(JSON.stringify({ query, namespaces }));
    } else if (!this.#isClosed && this.#socket === null && this.#timer === null) {
      this.#open(); // the last query was refused for good
    }
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    const socket = this.#socket;
    if (socket?.readyState === 0) socket.onopen = () => socket.close(1000); // before that, browsers would complain
    else socket?.close(1000);
  }

  get isClosed() {
    return this.#isClosed;
  }

  #open() {
    this.#timer = null;
    const url = new URL(this.#url);
    if (this.#query) url.searchParams.set("query", this.#query);
    for (const [prefix, uri] of Object.entries(this.#namespaces)) url.searchParams.append("namespace", `${prefix}=${uri}`);
    if (this.position !== null) url.searchParams.set("after", this.position);
    if (this.#options.token) url.searchParams.set("token", this.#options.token);
    const Socket = this.#options.WebSocket ?? globalThis.WebSocket;
    const socket = this.#socket = new Socket(url.href);
    const [query, namespaces] = [this.#query, this.#namespaces];
    socket.onopen = () => {
      // What was asked for while the connection was being made.
      if (query !== this.#query || namespaces !== this.#namespaces) this.changeQuery(this.#query);
      this.#tell("onOpen", {});
    };
    socket.onmessage = message => { if (!this.#isClosed) this.#take(JSON.parse(message.data)); };
    socket.onclose = event => this.#closed(event);
    socket.onerror = () => {}; // onclose follows
  }

  #take(event) {
    if (event.type !== "error") this.#retryMs = FIRST_RETRY_MS;
    if (event.type === "packet") this.position = event.an;
    else if (event.type === "gap") this.position = event.until;
    else if (event.type === "started") this.position = event.position;
    this.#tell(handlers[event.type], event);
  }

  #closed(event) {
    this.#socket = null;
    this.#tell("onClose", { code: event.code, reason: event.reason });
    if (this.#isClosed || REFUSED.has(event.code)) return;
    this.#timer = setTimeout(() => this.#open(), this.#retryMs * (0.5 + Math.random() / 2));
    this.#retryMs = Math.min(2 * this.#retryMs, LAST_RETRY_MS);
  }

  #tell(name, event) {
    this.#options[name]?.(event);
  }
}
