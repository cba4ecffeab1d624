// Talks to a model over a WebSocket, with the key as Codex sends it.
const ws = new WebSocket(process.argv[2], {
	headers: {authorization: `Bearer ${process.env.OPENAI_API_KEY}`, "openai-beta": "responses_websockets=2026-02-06"},
});
ws.onerror = (e) => { console.error(e.message); process.exit(1); };
ws.onopen = () => ws.send(JSON.stringify({type: "response.create", model: "m", input: []}));
ws.onmessage = (e) => { console.log(JSON.parse(e.data).type); ws.close(); };
