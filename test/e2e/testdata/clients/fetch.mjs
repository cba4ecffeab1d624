// Fetches a URL with the three clients that Node has of its own.
import http2 from "node:http2";
import https from "node:https";

const url = process.argv[2];
process.stdout.write("fetch: " + await (await fetch(url)).text());
process.stdout.write("https: " + await new Promise((resolve, reject) => {
	https.get(url, (r) => r.setEncoding("utf8").on("data", resolve)).on("error", reject);
}));
const session = http2.connect(url);
process.stdout.write("http2: " + await new Promise((resolve, reject) => {
	session.on("error", reject);
	session.request({":path": "/"}).setEncoding("utf8").on("data", resolve).on("error", reject);
}));
session.close();
