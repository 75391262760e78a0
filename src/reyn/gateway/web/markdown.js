// Markdown of models, as elements from an allow list. Nothing is ever parsed as HTML; links show their target.

import { html } from "./preact.js";

const INLINE = /(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|\[([^\[\]]{0,2000})\]\(([^)\s]{1,2000})\)|(https?:\/\/[^\s<>"')]+)/g;

// Characters that reorder or hide text, or that a terminal would obey, are written as their code. Selectors of emoji are not.
const HIDDEN = /(?![\t\n\ufe00-\ufe0f])[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Cc}\u2028\u2029\ufff9-\ufffb]/gu;
const coded = (one) => (one.length > 1 ? `\\u{${one.codePointAt(0).toString(16)}}` : `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
export const visible = (text) => text.replace(HIDDEN, coded);

function link(text, target) {
  let address;
  try {
    address = new URL(target);
  } catch {
    return `${text} (${target})`;
  }
  if (address.protocol !== "http:" && address.protocol !== "https:") return `${text} (${target})`;
  const shown = text && text !== target ? `${text} (${address.href})` : address.href;
  return html`<a href=${address.href} rel="noopener noreferrer nofollow" target="_blank">${shown}</a>`;
}

function inline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    const [whole, code, strong, emphasis, label, target, bare] = found;
    if (code) parts.push(html`<code>${code.slice(1, -1)}</code>`);
    else if (strong) parts.push(html`<strong>${strong.slice(2, -2)}</strong>`);
    else if (emphasis) parts.push(html`<em>${emphasis.slice(1, -1)}</em>`);
    else if (target) parts.push(link(label, target));
    else parts.push(link("", bare));
    at = found.index + whole.length;
  }
  parts.push(text.slice(at));
  return parts;
}

export function Markdown({ text }) {
  const blocks = [];
  const lines = visible(text).split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at];
    if (line.startsWith("```")) {
      const code = [];
      while (++at < lines.length && !lines[at].startsWith("```")) code.push(lines[at]);
      blocks.push(html`<pre>${code.join("\n")}</pre>`);
    } else if (/^#{1,6} /.test(line)) {
      blocks.push(html`<p><strong>${inline(line.replace(/^#+ /, ""))}</strong></p>`);
    } else if (/^\s*([-*]|\d+[.)]) /.test(line)) {
      const isOrdered = /^\s*\d/.test(line);
      const items = [];
      while (at < lines.length && /^\s*([-*]|\d+[.)]) /.test(lines[at])) items.push(lines[at++].replace(/^\s*([-*]|\d+[.)]) /, ""));
      at--;
      const list = items.map((item) => html`<li>${inline(item)}</li>`);
      blocks.push(isOrdered ? html`<ol>${list}</ol>` : html`<ul>${list}</ul>`);
    } else if (line.trim()) {
      const paragraph = [line];
      while (at + 1 < lines.length && lines[at + 1].trim() && !/^(```|#{1,6} |\s*([-*]|\d+[.)]) )/.test(lines[at + 1])) paragraph.push(lines[++at]);
      blocks.push(html`<p>${paragraph.flatMap((one, index) => (index ? [html`<br />`, ...inline(one)] : inline(one)))}</p>`);
    }
  }
  return blocks;
}
