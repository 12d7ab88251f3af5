// A small in-memory store of records: one request a line on standard input, one answer a line.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

public class Server {
    private record Held(String name, int cents, int[] scores, String token, String note) {}

    private static final Map<Integer, Held> STORE = new HashMap<>();

    private static long sumOfBytes(String text) {
        long sum = 0;
        for (int i = 0; i < text.length(); i++) {
            sum += text.charAt(i);
        }
        return sum;
    }

    private static String get(int id) {
        Held held = STORE.get(id);
        int sum = 0;
        for (int score : held.scores()) {
            sum += score;
        }
        return held.name() + ' ' + held.cents() + ' ' + sum + ' ' + sumOfBytes(held.note()) + ' '
            + held.token() + '\n';
    }

    private static String put(String line) {
        String[] fields = line.split("\t");
        String[] words = fields[3].split(",");
        int[] scores = new int[words.length];
        for (int i = 0; i < words.length; i++) {
            scores[i] = Integer.parseInt(words[i]);
        }
        int id = Integer.parseInt(fields[0]);
        STORE.put(id, new Held(fields[1], Integer.parseInt(fields[2]), scores, fields[4], fields[5]));
        return "ok " + id + '\n';
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.ISO_8859_1));
        PrintStream out = System.out;
        StringBuilder answers = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            switch (line.charAt(0)) {
                case 'G' -> answers.append(get(Integer.parseInt(line.substring(2))));
                case 'P' -> answers.append(put(line.substring(2)));
                case '.' -> {
                    out.write(answers.toString().getBytes(StandardCharsets.ISO_8859_1));
                    out.flush();
                    answers.setLength(0);
                }
                default -> answers.append("unknown request\n");
            }
        }
    }
}
