// Fetches a URL through the proxy that HTTPS_PROXY names.
import http from "node:http";
import https from "node:https";
import tls from "node:tls";

const url = new URL(process.argv[2]);
const proxy = new URL(process.env.HTTPS_PROXY);
http.request({host: proxy.hostname, port: proxy.port, method: "CONNECT", path: url.hostname + ":443"})
	.on("connect", (answer, socket) => {
		console.log("connect:", answer.statusCode);
		const connection = tls.connect({socket, servername: url.hostname});
		https.get(url, {createConnection: () => connection, agent: false}, (r) => {
			r.pipe(process.stdout);
			r.on("end", () => connection.end());
		});
	})
	.end();
