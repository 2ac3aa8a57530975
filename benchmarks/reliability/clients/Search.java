import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** POSTs with Java's own client as it comes, which offers HTTP/2 to every server: URL KEY BODY COUNT. */
public class Search {
    public static void main(String[] given) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        HttpRequest request = HttpRequest.newBuilder(URI.create(given[0]))
            .header("Content-Type", "application/json")
            .header("X-API-Key", given[1])
            .POST(HttpRequest.BodyPublishers.ofString(given[2]))
            .build();
        int answered = 0;
        for (int asked = 0; asked < Integer.parseInt(given[3]); asked++) {
            try {
                HttpResponse<String> reply = client.send(request, HttpResponse.BodyHandlers.ofString());
                if (reply.statusCode() == 200 && reply.body().contains("\"query_id\"")) {
                    answered++;
                }
            } catch (IOException error) {
                // Not answered.
            }
        }
        System.out.println(answered);
    }
}
