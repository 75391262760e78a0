// What a run did, as lines that are fetched as they come into view.

import { get, runPath } from "./api.js";
import { visible } from "./markdown.js";
import { Failure, Rows, html, useEffect, useRows, useState } from "./ui.js";

// The index of the line of an event, if the rows around it are known.
function indexOf(rows, seq) {
  for (const [index, line] of rows.known) {
    const next = rows.known.get(index + 1);
    if (line.seq <= seq && (next ? next.seq > seq : index === rows.total - 1)) return index;
  }
  return null;
}

export function Story({ run, seq, level, at, onChoose, height }) {
  const load = async (query) => {
    const page = await get(runPath(run, "/timeline"), { level, ...query });
    return { total: page.total, start: page.start, found: page.found, rows: page.lines };
  };
  const rows = useRows(load, `${run} ${level}`, seq);
  const [chosen, setChosen] = useState(null);
  useEffect(() => {
    if (at === null || !rows.isKnown) return undefined;
    const known = indexOf(rows, at);
    if (known !== null) {
      setChosen(known);
      return undefined;
    }
    let isLeft = false;
    rows.fetch({ around: at, limit: 100 }).then((page) => !isLeft && page && setChosen(page.found));
    return () => { isLeft = true; };
  }, [run, level, at, rows.isKnown]);
  return html`<div><${Failure} error=${rows.error} /></div>
    <${Rows} rows=${rows} label="Events" chosen=${at === null ? rows.total - 1 : chosen} follow=${at === null} height=${height}
      onChoose=${(line) => onChoose(line.seq, line)}
      mark=${(line) => (line.is_warning ? "warning" : "")}
      draw=${(line) => html`<span class="seq">${line.seq}</span><span class="text" style=${{ paddingLeft: `${(line.level || 0) * 14}px` }}>${visible(line.text)}</span>`} />`;
}
