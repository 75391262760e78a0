// Draws the graph of a skill where the server has placed it, with the path that a run took.

import { visible } from "./markdown.js";
import { html } from "./preact.js";

export function Graph({ graph, visits = {}, taken = [], phase = "" }) {
  if (!graph.width) return html`<${Listed} graph=${graph} visits=${visits} phase=${phase} />`;
  const counts = new Map(taken.map((one) => [`${one.source}→${one.target}`, one.count]));
  const count = (edge) => counts.get(`${edge.source}→${edge.target}`) || 0;
  const edges = [...graph.edges].sort((one, other) => count(one) - count(other)); // what was taken is drawn above the rest
  return html`<div class="graph" tabindex="0" role="img" aria-label="Graph of ${graph.skill}: ${graph.edges.map((edge) => `${edge.source} to ${edge.target}`).join(", ")}">
    <svg width=${graph.width} height=${graph.height} viewBox="0 0 ${graph.width} ${graph.height}" style=${{ minWidth: `${0.7 * graph.width}px` }}>
      ${edges.map((edge) => html`<g class="edge ${count(edge) ? "taken" : ""} ${edge.is_loop ? "loop" : ""}"><title>${visible(edge.label)}${count(edge) > 1 ? ` · ${count(edge).toLocaleString()} times` : ""}</title>
        <path class="line" d=${edge.curve} /><path class="tip" d=${edge.tip} /><text x=${edge.x} y=${edge.y}>${edge.text}</text></g>`)}
      ${graph.nodes.map((node) => html`<${Node} node=${node} count=${visits[node.name] || 0} isCurrent=${node.name === phase} isEntry=${node.name === graph.entry} />`)}
    </svg></div>`;
}

function Node({ node, count, isCurrent, isEntry }) {
  const { x, y, width, height } = node, left = x - width / 2;
  const corner = node.kind === "end" || node.kind === "rules" ? 17 : 6;
  const isStack = node.kind === "skill" || node.kind === "fan_out";
  return html`<g class="node ${node.kind} ${isCurrent ? "current" : count ? "visited" : ""}"><title>${visible(node.name)} (${node.kind.replace("_", "-")})</title>
    ${isStack && html`<rect x=${left + 4} y=${y + 4} width=${width} height=${height} rx=${corner} />`}
    <rect x=${left} y=${y} width=${width} height=${height} rx=${corner} />
    ${isEntry && html`<text class="small" x=${left + 6} y=${y + 22}>▸</text>`}
    <text x=${x} y=${y + 22} text-anchor="middle">${node.text}</text>
    ${node.lines.map((line, row) => html`<text class="small" x=${x} y=${y + 37 + 15 * row} text-anchor="middle">${line}</text>`)}
    ${count > 1 && html`<text class="small" x=${x + width / 2 + (isStack ? 9 : 5)} y=${y + height - 3}>${count.toLocaleString()}×</text>`}</g>`;
}

const MOST_LISTED = 200;

// A graph that is too large to be read as a drawing.
function Listed({ graph, visits, phase }) {
  const listed = graph.nodes.slice(0, MOST_LISTED);
  return html`<div class="graph" tabindex="0" role="group" aria-label="Nodes of ${graph.skill}"><ul class="plain">
    ${listed.map((node) => html`<li class=${node.name === phase ? "current" : ""}><code>${visible(node.name)}</code> <span class="quiet">${visits[node.name] ? `${visits[node.name].toLocaleString()}×` : node.kind}</span></li>`)}</ul>
    ${listed.length < graph.nodes.length && html`<p class="quiet">${graph.nodes.length.toLocaleString()} nodes.</p>`}</div>`;
}
