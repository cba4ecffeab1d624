import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Fetches a URL with both clients that Java has of its own. */
public class Fetch {
	public static void main(String[] args) throws Exception {
		System.out.print("connection: " + new String(new URL(args[0]).openStream().readAllBytes()));
		HttpResponse<String> r = HttpClient.newHttpClient().send(
			HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString());
		System.out.print("client: " + r.version() + " " + r.body());
	}
}
