// Conversations with agents: messages, the reply as it arrives, skills beside it, questions in place.

import { chatPath, get, may, onChange, post, runPath } from "./api.js";
import { Markdown, visible } from "./markdown.js";
import { Question, mustBeNamed } from "./questions.js";
import { Action, Command, Failure, Status, ago, html, shellQuote, useEffect, useLoaded, useRef, useState } from "./ui.js";

export function Chats({ go, agent: named }) {
  const found = useLoaded(() => get("/api/conversations"), [], (change) => change.type === "run");
  const agents = useLoaded(() => get("/api/agents"), []);
  const [agent, setAgent] = useState(named || "default");
  return html`<div class="talk"><h1>Chat</h1>
    ${may("start") && html`<div class="row"><label class="inline" for="agent">Agent</label>
      <select id="agent" value=${agent} onChange=${(event) => setAgent(event.target.value)}>${(agents.value || []).map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select></div>
      <${Composer} label="Message" send=${(text, images) => post("/api/conversations", { agent, text, images })} onDone=${(begun) => go(`/chat/${begun.run_id}`)} />`}
    <${Failure} error=${found.error || agents.error} />
    <h2>Past conversations</h2>
    ${found.value && !found.value.length && html`<p class="empty">None yet. A message begins one.</p>`}
    <ul class="plain">${(found.value || []).map((one) => html`<li><a href="/chat/${one.run_id}">${visible(one.title || one.first_message || one.run_id)}</a> <span class="quiet">${one.agent} · ${one.messages} messages · ${ago(one.updated)} ago</span> <${Status} text=${one.display_status} /></li>`)}</ul>
    <${Command} text="reyn chats" /></div>`;
}

// What is going on in a conversation, from the items of the stream.
function useLive(run) {
  const empty = { text: "", notes: [], isBusy: false };
  const [live, setLive] = useState(empty);
  useEffect(() => {
    setLive(empty);
    return onChange((change) => {
      if (change.type !== "item" || change.run_id !== run) return;
      const item = change.item;
      setLive((before) => next(before, item) || before);
    });
  }, [run]);
  return [live, setLive];
}

function next(live, item) {
  const note = (text) => ({ ...live, isBusy: true, notes: [...live.notes, text].slice(-20) });
  switch (item.item) {
    case "message": return { text: "", notes: [], isBusy: true };
    case "delta": return { ...live, text: live.text + item.text, isBusy: true };
    case "restarted": return { ...note(item.reason), text: "" };
    case "op": return note(`uses ${item.kind}`);
    case "op_result": return note(`${item.kind}: ${item.status}`);
    case "run_started": return note(`runs ${item.skill}${item.background ? " in the background" : ""}`);
    case "run_progress": return note(`${item.skill}: ${item.phase}`);
    case "run_ended": return note(`${item.run}: ${item.status} ${item.reason || ""}`);
    case "reply": return { text: "", notes: item.status === "replied" ? [] : [item.reason || item.status], isBusy: false };
    case "stopped": return { text: "", notes: item.status === "waiting" ? live.notes : [`${item.status}: ${item.reason} ${item.hint}`], isBusy: false };
    default: return null;
  }
}

export function ChatPage({ run, go }) {
  const mine = (change) => (change.type === "run" && change.run_id.startsWith(run)) || (change.type === "item" && change.run_id === run && ["reply", "message", "question", "stopped"].includes(change.item.item));
  const found = useLoaded(() => get(chatPath(run)), [run], mine);
  const asked = useLoaded(() => get(`/api/questions?run=${encodeURIComponent(run)}`), [run], mine);
  const memory = useLoaded(() => get(chatPath(run, "/memory")).catch(() => []), [run], mine);
  const [live] = useLive(run);
  const [editing, setEditing] = useState(null);
  const [held, setHeld] = useState(null);
  const [draft, setDraft] = useState({ text: "", count: 0 });
  const end = useRef(null);
  const count = found.value ? found.value.messages.length : 0;
  useEffect(() => end.current && end.current.scrollIntoView({ block: "end" }), [count, live.text]);
  if (!found.value) return html`<h1>Chat</h1><${Failure} error=${found.error} />`;
  const { messages, run: row, title } = found.value, agent = row.skill.replace("agent:", "");
  const isOver = ["finished", "aborted", "cancelled"].includes(row.status);
  const open = (asked.value || []).find((one) => !one.is_answered && !mustBeNamed(one.question));
  // While a question is open, the server says what a text means, and the user confirms it.
  const send = async (text, images) => {
    const meaning = open && !images.length ? await post(chatPath(run, "/meaning"), { text }) : {};
    if (meaning.question && !mustBeNamed(meaning.question.question)) return setHeld({ text, meaning });
    return post(chatPath(run, "/messages"), { text, images });
  };
  return html`<div class="talk"><h1>${visible(title || agent)} <a class="quiet mono" href="/runs/${run}">${run}</a></h1>
    <div class="chat" role="log" aria-label="Messages" aria-live="polite">
      ${messages.map((message) => html`<${Message} key=${message.seq} message=${message} command=${message.number > 1 ? `reyn chat --fork ${shellQuote(`${run}@${message.number}`)}` : `reyn chat ${shellQuote(agent)}`} onAgain=${{ perform: () => post(chatPath(run, "/edit"), { number: message.number, text: message.text }), onDone: (begun) => go(`/chat/${begun.run_id}`) }} onEdit=${may("start") && message.role === "user" ? () => setEditing(message) : null} />`)}
      ${(live.isBusy || row.status === "running") && html`<div class="message" aria-busy="true"><${Markdown} text=${live.text} /><p class="note busy">working</p></div>`}
      ${live.notes.map((note) => html`<div class="note">${visible(note)}</div>`)}
    </div>
    ${(asked.value || []).map((one) => html`<${Question} key="${one.run_id} ${one.question.id}" asked=${one} onDone=${() => { asked.again(); found.again(); }} />`)}
    ${editing && html`<div class="card"><p>Say something else in place of message ${editing.number}; ${editing.number > 1 ? "a copy of the conversation goes on from there" : "a new conversation begins with it"}.</p>
      <${Composer} label="Instead" text=${editing.text} send=${(text, images) => post(chatPath(run, "/edit"), { number: editing.number, text, images })} onDone=${(begun) => { setEditing(null); go(`/chat/${begun.run_id}`); }} />
      <button onClick=${() => setEditing(null)}>Keep it</button></div>`}
    ${held && html`<${Held} run=${run} held=${held} onDone=${() => { setHeld(null); asked.again(); found.again(); }} onBack=${() => { setHeld(null); setDraft({ text: held.text, count: draft.count + 1 }); }} />`}
    ${!isOver && may("start") && !held && html`<${Composer} key=${draft.count} label="Message" text=${draft.text} hint=${open && `${open.skill} asks: ${open.question.message}`} send=${send} onDone=${found.again} />
      ${(live.isBusy || row.status === "running") && html`<${Action} label="Stop the reply" kind="bad" command="Ctrl-C in reyn chat --run-id ${shellQuote(run)}" perform=${() => post(chatPath(run, "/abort"), { reason: "stopped by the user" })} />`}`}
    <div ref=${end}></div>
    <${Memory} run=${run} entries=${memory.value || []} onDone=${memory.again} />
    <${Command} text="reyn chat --run-id ${shellQuote(run)}" /></div>`;
}

// A text that was typed while a question is open: what it means, before it acts.
function Held({ run, held, onDone, onBack }) {
  const { text, meaning } = held, { question, run: asking, skill } = meaning.question;
  const answer = { label: `Send as the answer to ${skill}`, perform: () => post(runPath(asking, "/answer"), meaning.kind === "answer" ? { question: question.id, value: meaning.value } : { question: question.id, value: text, is_text: true }) };
  const message = { label: "Send to the agent", perform: () => post(chatPath(run, "/messages"), { text, images: [] }) };
  const [first, second] = meaning.kind === "answer" ? [answer, message] : [message, answer];
  return html`<div class="card urgent" role="status"><p><strong>${meaning.kind === "answer" ? `Answer to ${skill}` : "Message to the agent"}</strong>: ${visible(meaning.kind === "answer" && typeof meaning.value === "string" ? meaning.value : text)}</p>
    ${meaning.reason && html`<p class="quiet">${visible(meaning.reason)}</p>`}
    <div class="row"><${Action} label=${first.label} kind="main" perform=${first.perform} onDone=${onDone} /><${Action} label=${second.label} perform=${second.perform} onDone=${onDone} />
      <button onClick=${onBack}>Take back</button></div></div>`;
}

function Message({ message, command, onEdit, onAgain }) {
  return html`<div class="message ${message.role}"><${Markdown} text=${message.text} />
    ${onEdit && html`<div class="row small"><button title="Say something else here, in a copy: ${command}" onClick=${onEdit}>Edit</button>
      <${Action} label="Ask again" title="Say the same here, in a copy" command=${command} perform=${onAgain.perform} onDone=${onAgain.onDone} /></div>`}</div>`;
}

// What the conversation remembers. A change is taken by the run before its next turn.
function Memory({ run, entries, onDone }) {
  const [text, setText] = useState("");
  const change = (body) => post(chatPath(run, "/memory"), body);
  return html`<details><summary>Memory, ${entries.length} ${entries.length === 1 ? "entry" : "entries"}</summary>
    <ul>${entries.map((one) => html`<li key=${one.id}>${visible(one.text)} ${may("start") && html`<${Action} label="Forget" command="/unpin ${one.id} in reyn chat --run-id ${shellQuote(run)}" perform=${() => change({ forget: one.id })} onDone=${onDone} />`}</li>`)}</ul>
    ${may("start") && html`<form class="row" onSubmit=${(event) => event.preventDefault()}><label class="inline" for="remember">Remember</label><input id="remember" value=${text} onInput=${(event) => setText(event.target.value)} />
      <${Action} label="Remember" command="/pin ${text.trim() || "FACT"} in reyn chat --run-id ${shellQuote(run)}" disabled=${!text.trim()} perform=${() => change({ remember: text })} onDone=${() => { setText(""); onDone(); }} /></form>`}</details>`;
}

function Composer({ label, send, onDone, text: initial = "", hint }) {
  const [text, setText] = useState(initial);
  const [images, setImages] = useState([]);
  const [state, setState] = useState({ isBusy: false, error: null });
  const submit = async (event) => {
    if (event) event.preventDefault();
    if (!text.trim() || state.isBusy) return;
    setState({ isBusy: true, error: null });
    try {
      const result = await send(text, images);
      setText("");
      setImages([]);
      setState({ isBusy: false, error: null });
      if (onDone) onDone(result);
    } catch (error) {
      setState({ isBusy: false, error });
    }
  };
  const attach = async (event) => setImages(await Promise.all([...event.target.files].map(encoded)));
  const id = `composer-${label}`;
  return html`<form onSubmit=${submit}><label for=${id}>${label}</label>
    ${hint && html`<p class="quiet">${visible(hint)}</p>`}
    <textarea id=${id} value=${text} onInput=${(event) => setText(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && (event.preventDefault(), submit())}></textarea>
    <div class="row"><button class="main" disabled=${state.isBusy || !text.trim()}>Send</button>
      <label class="inline">Images <input type="file" accept="image/png,image/jpeg,image/webp,image/gif" multiple onChange=${attach} /></label></div>
    <${Failure} error=${state.error} /></form>`;
}

const encoded = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve({ media_type: file.type, data: String(reader.result).split(",")[1] });
  reader.onerror = () => reject(new Error("the file cannot be read"));
  reader.readAsDataURL(file);
});
