// Draws the graph of a skill, with the path that a run took. Layers from the entry; loops go around.

import { html } from "./preact.js";

const WIDTH = 150, HEIGHT = 34, GAP_X = 40, GAP_Y = 62;

function layout(graph) {
  const layer = { [graph.entry]: 0 };
  const forward = graph.edges.filter((edge) => !edge.is_loop);
  for (let round = 0; round < graph.nodes.length; round++)
    for (const edge of forward)
      if (layer[edge.source] !== undefined) layer[edge.target] = Math.max(layer[edge.target] ?? 0, layer[edge.source] + 1);
  const rows = [];
  for (const node of graph.nodes) (rows[layer[node.name] ?? 0] ||= []).push(node);
  const widest = Math.max(...rows.filter(Boolean).map((row) => row.length), 1);
  const at = {};
  rows.forEach((row, y) => row.forEach((node, x) => {
    const offset = ((widest - row.length) * (WIDTH + GAP_X)) / 2;
    at[node.name] = { x: 20 + offset + x * (WIDTH + GAP_X), y: 16 + y * (HEIGHT + GAP_Y) };
  }));
  return { at, width: 60 + widest * (WIDTH + GAP_X), height: 30 + rows.length * (HEIGHT + GAP_Y) - GAP_Y + 10 };
}

const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function Graph({ graph, path = [], phase = "" }) {
  const { at, width, height } = layout(graph);
  const taken = new Set(path.slice(1).map((name, index) => `${path[index]}→${name}`));
  const visited = new Set(path);
  return html`<div class="graph" tabindex="0" role="img" aria-label="Graph of ${graph.skill}: ${graph.edges.map((edge) => `${edge.source} to ${edge.target}`).join(", ")}">
    <svg width=${width} height=${height} viewBox="0 0 ${width} ${height}">
      <defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${graph.edges.map((edge) => html`<${Arrow} edge=${edge} at=${at} isTaken=${taken.has(`${edge.source}→${edge.target}`)} />`)}
      ${graph.nodes.map((node) => {
        const { x, y } = at[node.name];
        const kind = node.name === phase ? "current" : visited.has(node.name) ? "visited" : "";
        return html`<g class=${kind}><title>${node.name} (${node.kind})</title>
          <rect x=${x} y=${y} width=${WIDTH} height=${HEIGHT} rx=${node.kind === "end" ? 17 : node.kind === "phase" ? 6 : 0} />
          <text x=${x + WIDTH / 2} y=${y + 22} text-anchor="middle">${short(node.name, 18)}</text></g>`;
      })}
    </svg></div>`;
}

function Arrow({ edge, at, isTaken }) {
  const from = at[edge.source], to = at[edge.target];
  const [x1, x2] = [from.x + WIDTH / 2, to.x + WIDTH / 2];
  let path, label;
  if (edge.is_loop || to.y <= from.y) {
    const side = Math.max(from.x, to.x) + WIDTH;
    path = `M${from.x + WIDTH} ${from.y + HEIGHT / 2}C${side + 34} ${from.y + HEIGHT / 2} ${side + 34} ${to.y + HEIGHT / 2} ${to.x + WIDTH} ${to.y + HEIGHT / 2}`;
    label = { x: side + 6, y: (from.y + to.y + HEIGHT) / 2 };
  } else {
    const [y1, y2] = [from.y + HEIGHT, to.y];
    path = `M${x1} ${y1}C${x1} ${y1 + GAP_Y / 2} ${x2} ${y2 - GAP_Y / 2} ${x2} ${y2 - 2}`;
    label = { x: (x1 + x2) / 2 + 4, y: (y1 + y2) / 2 + 3 };
  }
  return html`<g><title>${edge.label}</title><path class=${isTaken ? "taken" : ""} d=${path} marker-end="url(#head)" />
    <text class="label" x=${label.x} y=${label.y}>${short(edge.label, 24)}</text></g>`;
}
