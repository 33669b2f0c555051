import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonStreamContext;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ReadListener;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * Guards the embedded catalog's servlet, which by itself serves everybody and writes to any location.
 *
 * <p>No web page may use the catalog, nor any program without its token, and no table is made outside its places.
 * Janino compiles this file when the catalog starts: it knows neither lambdas nor `var`, and few generics.
 */
public final class Door implements Filter {
  // Any port, for a client behind a tunnel names another one. A page cannot choose the host name that it came from.
  private static final Pattern OURS = Pattern.compile("(?i)(127\\.0\\.0\\.1|localhost|\\[::1\\])(:[0-9]{1,5})?");
  // Not two slashes: a host would follow them.
  private static final Pattern FILE = Pattern.compile("(?i)file:(?:/|//+/)((?!/).*)");
  private static final Pattern STORE = Pattern.compile("([A-Za-z][A-Za-z0-9+.-]*)://([^/]+)(/.*)?");
  private static final Pattern S3 = Pattern.compile("(?i)s3[an]?");
  // `.` and `..`, also as `%2e`, which some readers decode.
  private static final Pattern DOTS = Pattern.compile("(?i)(^|.*[/\\\\])(\\.|%2e){1,2}($|[/\\\\].*)", Pattern.DOTALL);

  private static final Set LOCATIONS = new HashSet(Arrays.asList(new Object[] {
      "location", "metadata-location", "write.data.path", "write.metadata.path", "write.folder-storage.path",
      "write.object-storage.path"}));
  // The location of a table that is given none is made of these.
  private static final Set NAMES = new HashSet(Arrays.asList(new Object[] {"name", "namespace"}));

  // Of a name that comes twice, this filter and the servlet might read different values.
  private final JsonFactory json = new JsonFactory().enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION);
  private byte[] expected;
  private String[] places;

  public void init(FilterConfig told) throws ServletException {
    expected = ("Bearer " + told.getInitParameter("token")).getBytes(StandardCharsets.UTF_8);
    places = told.getInitParameter("places").split("\n");
    for (int at = 0; at < places.length; at++) {
      places[at] = normalised(places[at]);
      if (places[at] == null) {
        throw new ServletException("The warehouse's path can't be compared with the locations of tables: choose a plain path.");
      }
    }
  }

  public void destroy() {}

  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    HttpServletRequest asked = (HttpServletRequest) request;
    HttpServletResponse answer = (HttpServletResponse) response;
    String host = asked.getHeader("Host");
    String site = asked.getHeader("Sec-Fetch-Site");
    if (host == null || !OURS.matcher(host).matches()) {
      refuse(answer, 403, "ForbiddenException", "This catalog answers to 127.0.0.1 and localhost alone, because a web "
          + "page could make any other name lead here: use one of these two names in the catalog's address.");
    } else if (asked.getHeader("Origin") != null || site != null && !site.equals("none") && !site.equals("same-origin")) {
      refuse(answer, 403, "ForbiddenException", "This request comes from a web page, and no web page may use this "
          + "catalog: use a client that is not a web page.");
    } else if (!knowsToken(asked)) {
      refuse(answer, 401, "NotAuthorizedException", "This catalog asks for its token, so that no other user of this "
          + "machine can use it: send the token as `Authorization: Bearer`, or as the client's property `token`. `lakehouse-ingest "
          + "catalog serve` prints it, and .lakehouse/catalog.json in the warehouse keeps it.");
    } else if (hasBody(asked)) {
      passBody(asked, answer, chain);
    } else {
      chain.doFilter(asked, answer);
    }
  }

  private boolean knowsToken(HttpServletRequest asked) {
    String given = asked.getHeader("Authorization");
    // Takes the same time wherever the two differ.
    return given != null && MessageDigest.isEqual(expected, given.getBytes(StandardCharsets.UTF_8));
  }

  private static boolean hasBody(HttpServletRequest asked) {
    return asked.getContentLengthLong() > 0 || asked.getHeader("Transfer-Encoding") != null;
  }

  private void passBody(HttpServletRequest asked, HttpServletResponse answer, FilterChain chain)
      throws IOException, ServletException {
    String type = asked.getContentType();
    if (type == null || !type.split(";")[0].trim().toLowerCase(Locale.ROOT).equals("application/json")) {
      refuse(answer, 415, "UnsupportedMediaTypeException", "This catalog reads only JSON, and the content type of this "
          + "request is another: send it as application/json. This catalog issues no tokens, because its own is fixed.");
      return;
    }
    byte[] body = asked.getInputStream().readAllBytes();
    String wrong;
    try {
      wrong = outside(body);
    } catch (JsonProcessingException broken) {
      refuse(answer, 400, "BadRequestException", "The body is not JSON: " + broken.getOriginalMessage());
      return;
    }
    if (wrong == null) {
      chain.doFilter(new Again(asked, body), answer);
    } else {
      refuse(answer, 400, "BadRequestException", wrong + " is outside the warehouse, where this catalog makes and "
          + "changes nothing: choose a location within " + String.join(" or ", places) + ", or leave it out.");
    }
  }

  /** The first location that is outside our places, or the first name that would lead there; null if there is none. */
  private String outside(byte[] body) throws IOException {
    JsonParser parser = json.createParser(body);
    for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
      if (token.isScalarValue() && token != JsonToken.VALUE_NULL) {
        JsonStreamContext where = parser.getParsingContext();
        while (where.inArray()) {
          where = where.getParent();
        }
        String said = parser.getText();
        if (LOCATIONS.contains(where.getCurrentName()) && !isWithin(normalised(said))
            || NAMES.contains(where.getCurrentName()) && DOTS.matcher(said).matches()) {
          return said;
        }
      }
    }
    return null;
  }

  private boolean isWithin(String location) {
    for (int at = 0; location != null && at < places.length; at++) {
      if (location.equals(places[at]) || location.startsWith(places[at] + "/")) {
        return true;
      }
    }
    return false;
  }

  /** One spelling for each place, or null for a path that has more than one meaning. */
  private static String normalised(String location) {
    String path = location.startsWith("/") ? "file:" + location : location;
    java.util.regex.Matcher file = FILE.matcher(path);
    java.util.regex.Matcher store = STORE.matcher(path);
    String start;
    if (DOTS.matcher(path).matches()) {
      return null;
    } else if (file.matches()) {
      start = "file:///";
      path = file.group(1);
    } else if (store.matches() && !store.group(1).equalsIgnoreCase("file")) {
      String scheme = S3.matcher(store.group(1)).matches() ? "s3" : store.group(1).toLowerCase(Locale.ROOT);
      start = scheme + "://" + store.group(2);
      path = store.group(3) == null ? "" : store.group(3);
    } else {
      return null;
    }
    return start + path.replaceAll("/+", "/").replaceAll("/$", "");
  }

  private static void refuse(HttpServletResponse answer, int status, String type, String message) throws IOException {
    answer.setStatus(status);
    answer.setContentType("application/json");
    answer.setCharacterEncoding("UTF-8");
    answer.getWriter().write("{\"error\":{\"message\":\"" + new String(JsonStringEncoder.getInstance().quoteAsString(message))
        + "\",\"type\":\"" + type + "\",\"code\":" + status + "}}");
  }

  /** A request whose body was read already and can be read again. */
  private static final class Again extends HttpServletRequestWrapper {
    private final byte[] body;

    Again(HttpServletRequest asked, byte[] body) {
      super(asked);
      this.body = body;
    }

    public ServletInputStream getInputStream() {
      return new Body(body);
    }

    public BufferedReader getReader() {
      return new BufferedReader(new InputStreamReader(new ByteArrayInputStream(body), StandardCharsets.UTF_8));
    }
  }

  private static final class Body extends ServletInputStream {
    private final ByteArrayInputStream rest;

    Body(byte[] body) {
      rest = new ByteArrayInputStream(body);
    }

    public int read() {
      return rest.read();
    }

    public boolean isFinished() {
      return rest.available() == 0;
    }

    public boolean isReady() {
      return true;
    }

    public void setReadListener(ReadListener listener) {
      throw new IllegalStateException("the catalog's servlet reads blockingly");
    }
  }
}
