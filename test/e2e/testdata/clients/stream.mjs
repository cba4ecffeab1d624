// Reads a stream of events, each of which comes only after the former one was
// answered, and talks over a WebSocket.
const [events, next, socket] = process.argv.slice(2);
const init = events.endsWith("/v1/messages") ? {
	method: "POST", body: "{}", headers: {"x-api-key": process.env.ANTHROPIC_API_KEY},
} : {};
const response = await fetch(events, init);
for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
	const said = chunk.trim().replace("data: ", "");
	console.log(said);
	if (said.startsWith("event")) await fetch(next, {headers: init.headers});
}
if (socket) {
	const ws = new WebSocket(socket);
	ws.onerror = (e) => { console.error(e.message); process.exit(1); };
	ws.onmessage = (e) => {
		console.log(e.data);
		if (e.data === "greetings") ws.send("echo of ünicode");
		else ws.close();
	};
}
