// The goal of the mesh: what it costs now, and how that changed. Hidden while there is no goal.
const $ = (id) => document.getElementById(id);
const SECONDS = 180;

export class Goal {
  constructor() {
    this.history = [];
    this.goal = null;
  }

  update(goal, now) {
    this.goal = goal;
    $("goal").hidden = !goal;
    if (!goal) return;
    $("goal-text").textContent = goal.text;
    $("goal-cost").textContent = goal.shown || "…";
    $("goal-moves").textContent = goal.moves === 1 ? "1 move" : `${goal.moves.toLocaleString("en")} moves`;
    $("goal-broken").textContent = goal.broken.map(([name, text]) => `${name}: ${text}`).join("; ");
    if (goal.cost === null) return;
    if (this.history.length && now < this.history.at(-1)[0]) this.history = [];
    this.history.push([now, goal.cost, goal.moves]);
    while (this.history[0][0] < now - SECONDS) this.history.shift();
    this.restyle();
  }

  /** The cost over the last three minutes; a dot for every move. */
  restyle() {
    const canvas = $("goal-curve");
    if (!this.goal || !this.history.length) return;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const last = this.history.at(-1)[0];
    const top = Math.max(...this.history.map(([, cost]) => Math.abs(cost)), 1e-9);
    const x = (at) => width - 3 - ((last - at) / SECONDS) * (width - 6);
    const y = (cost) => height - 3 - (Math.abs(cost) / top) * (height - 6);
    pen.strokeStyle = style.getPropertyValue("--accent");
    pen.lineWidth = 1.5;
    pen.beginPath();
    this.history.forEach(([at, cost], n) => (n ? pen.lineTo(x(at), y(cost)) : pen.moveTo(x(at), y(cost))));
    pen.stroke();
    pen.fillStyle = style.getPropertyValue("--good");
    this.history.forEach(([at, cost, moves], n) => {
      if (n && moves > this.history[n - 1][2]) pen.fillRect(x(at) - 2, y(cost) - 2, 4, 4);
    });
  }
}
