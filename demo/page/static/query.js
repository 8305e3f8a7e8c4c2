// The selected client's query: presets, what it matches as you type, and its errors.
const $ = (id) => document.getElementById(id);

export class QueryPanel {
  constructor(send) {
    this.send = send;
    this.number = 0;
    this.client = null;
    this.query = null;
    this.timer = 0;
    this.input = $("query");
    this.says = $("query-says");
    this.input.addEventListener("input", () => this.typed());
    $("query-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.client) this.send({ do: "query", name: this.client, text: this.input.value });
    });
  }

  hello(message) {
    $("presets").replaceChildren(...message.presets.map(([name, query]) => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: name, title: query });
      button.addEventListener("click", () => {
        this.input.value = query;
        this.typed();
        if (this.client) this.send({ do: "query", name: this.client, text: query });
      });
      return button;
    }));
  }

  /** The client whose query is edited; the text is left alone while somebody edits it. */
  own(peer) {
    if (!peer) return;
    if (this.client === peer.name && this.query === peer.query) return;
    const isNew = this.client !== peer.name;
    this.client = peer.name;
    this.query = peer.query;
    $("query-owner").textContent = peer.name;
    if (isNew || document.activeElement !== this.input) {
      this.input.value = peer.query ?? "";
      this.typed();
    }
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.send({ do: "try", text: this.input.value, id: ++this.number }), 180);
  }

  tried(message) {
    if (message.id !== this.number) return;
    this.says.classList.toggle("bad", !message.ok);
    this.input.setAttribute("aria-invalid", String(!message.ok));
    $("apply").disabled = !message.ok;
    if (message.ok) {
      const share = message.of ? (100 * message.matched) / message.of : 0;
      const count = document.createElement("b");
      count.textContent = `${message.matched.toLocaleString("en")} of ${message.of.toLocaleString("en")}`;
      this.says.replaceChildren("matches ", count, ` packets of the last ${Math.round(message.seconds)} s (${share.toFixed(share < 10 ? 1 : 0)} %)`);
      return;
    }
    const text = this.input.value;
    const at = Math.min(message.position, text.length);
    const mark = document.createElement("mark");
    mark.textContent = text.slice(at, at + 1) || "␣";
    this.says.replaceChildren(`${message.error}, at character ${at + 1}: …${text.slice(Math.max(0, at - 16), at)}`, mark, text.slice(at + 1, at + 12));
  }
}
