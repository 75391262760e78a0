// Open questions and approvals: what exactly is asked, and the forms that answer them.

import { may, post, runPath } from "./api.js";
import { Action, Command, Failure, ago, html, shellQuote, useState } from "./ui.js";
import { visible } from "./markdown.js";

const isApproval = (question) => question.reason === "approval" || question.reason === "decision";
export const mustBeNamed = (question) => isApproval(question) || question.reason === "unsafe";

export function Question({ asked, onDone, autofocus }) {
  const { question } = asked;
  const answer = (value, isText = false) =>
    post(runPath(asked.run_id, "/answer"), { question: question.id, value, is_text: isText });
  const kind = isApproval(question) ? "Approval" : question.reason === "unsafe" ? "Outcome unknown" : "Question";
  return html`<article class="card urgent" aria-label="${kind} of ${asked.skill}">
    <header><strong>${kind}</strong> <span>${asked.skill}</span>
      <a href="/runs/${asked.root_run}">${asked.run_id}</a> <span class="quiet">${ago(asked.since)} ago</span>
      ${question.expires_at && html`<span class="quiet">expires ${new Date(question.expires_at / 1000).toLocaleString()}</span>`}
    </header>
    ${mustBeNamed(question) ? html`<${Diff} text=${asked.text} />` : html`<p class="asks">${visible(asked.text)}</p>`}
    ${asked.is_answered
      ? html`<p class="quiet">A reply is stored; the run takes it when it continues.</p>`
      : !may(mustBeNamed(question) ? "approve" : "answer")
        ? html`<p class="quiet">Your token does not permit an answer.</p>`
        : isApproval(question)
          ? html`<${Approval} asked=${asked} answer=${answer} onDone=${onDone} />`
          : html`<${Reply} asked=${asked} answer=${answer} onDone=${onDone} autofocus=${autofocus} />`}
  </article>`;
}

// The text of an approval has a diff in it: its lines are coloured.
export function Diff({ text, isDiff = /^(@@|\+\+\+)/m.test(text) }) {
  const mark = (line) => (/^\+(?!\+\+)/.test(line) ? "added" : /^-(?!--)/.test(line) ? "removed" : "");
  const shown = visible(text.replace(/\n+$/, ""));
  return html`<pre class="diff" tabindex="0">${isDiff ? shown.split("\n").map((line) => html`<span class=${mark(line)}>${line}${"\n"}</span>`) : shown}</pre>`;
}

// The op or the artifact as JSON, to be edited. It stays text here, so that no number changes; the server checks it.
function Editor({ asked, remark, answer, onDone, onClose }) {
  const isOp = asked.edits === "args";
  const [text, setText] = useState(asked.draft);
  const label = isOp ? "Edited op, as JSON" : "Edited artifact, as JSON";
  const send = () => answer(`{"decision": "edit", "${asked.edits}": ${text}${remark && `, "remark": ${JSON.stringify(remark)}`}}`, true);
  const id = `edit-${asked.question.id}`;
  return html`<div>
    <label for=${id}>${label}</label>
    <textarea id=${id} class="code tall" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
    <${Command} text="reyn answer ${shellQuote(asked.run_id)} ${asked.question.id} edit" />
    <div class="row">
      <${Action} label=${isOp ? "Edit, and show what it does" : "Edit and approve"} kind="main" perform=${send} onDone=${onDone} />
      <button onClick=${onClose}>Close the editor</button>
    </div>
  </div>`;
}

function Approval({ asked, answer, onDone }) {
  const [remark, setRemark] = useState("");
  const [isEditing, setEditing] = useState(false);
  const [always, setAlways] = useState(false);
  const { question } = asked;
  const forms = question.response_schema.anyOf || [];
  const takesAlways = forms.some((form) => form.properties && form.properties.always);
  const reply = (decision) => answer(decision === "approve" && takesAlways ? { decision, always, ...(remark && { remark }) } : { decision, ...(remark && { remark }) });
  const command = `reyn answer ${shellQuote(asked.run_id)} ${question.id}`;
  return html`<div>
    <label for="remark-${question.id}">Remark, for the model and the journal</label>
    <input class="long" id="remark-${question.id}" value=${remark} onInput=${(event) => setRemark(event.target.value)} maxlength="4000" />
    <div class="row">
      <${Action} label="Approve" kind="main" command="${command} approve" perform=${() => reply("approve")} onDone=${onDone} />
      <${Action} label="Reject" kind="bad" command="${command} reject" perform=${() => reply("reject")} onDone=${onDone} />
      <${Action} label="Later" command="${command} defer" perform=${() => reply("defer")} onDone=${onDone} />
      ${asked.edits && !isEditing && html`<button onClick=${() => setEditing(true)} title="${command} edit">Edit …</button>`}
      ${takesAlways && html`<label class="inline"><input type="checkbox" checked=${always} onChange=${(event) => setAlways(event.target.checked)} /> always for this version of the skill</label>`}
    </div>
    <${Command} text="${command} approve" />
    ${isEditing && html`<${Editor} key=${question.id} asked=${asked} remark=${remark} answer=${answer} onDone=${onDone} onClose=${() => setEditing(false)} />`}
  </div>`;
}

function Reply({ asked, answer, onDone, autofocus }) {
  const { question } = asked;
  const schema = question.response_schema;
  const options = schema.enum || question.suggestions;
  const takesText = schema.type === "string" || (schema.anyOf || []).some((one) => one.type === "string");
  const [text, setText] = useState("");
  const [state, setState] = useState({ isBusy: false, error: null });
  const send = async (event) => {
    event.preventDefault();
    setState({ isBusy: true, error: null });
    try {
      await answer(text, true);
      setText("");
      setState({ isBusy: false, error: null });
      if (onDone) onDone();
    } catch (error) {
      setState({ isBusy: false, error });
    }
  };
  const id = `reply-${asked.run_id}-${question.id}`;
  return html`<form onSubmit=${send}>
    <div class="row">
      ${options.map((option) => html`<${Action} label=${String(option)} perform=${() => answer(option)} onDone=${onDone} />`)}
      ${schema.type === "boolean" && html`<${Action} label="Yes" perform=${() => answer(true)} onDone=${onDone} /><${Action} label="No" perform=${() => answer(false)} onDone=${onDone} />`}
    </div>
    ${!schema.enum && schema.type !== "boolean" && html`
      <label for=${id}>${takesText ? "Reply" : "Reply, as JSON"}</label>
      <textarea id=${id} class=${takesText ? "" : "code"} value=${text} autofocus=${autofocus} onInput=${(event) => setText(event.target.value)}></textarea>
      <div class="row"><button class="main" disabled=${state.isBusy}>Send reply</button></div>`}
    <${Failure} error=${state.error} />
    <${Command} text="reyn answer ${shellQuote(asked.run_id)} ${text ? shellQuote(text) : "VALUE"}" />
  </form>`;
}
