// Holds about 60 MiB of a Java heap and answers with digests over all of it.
//
// On each line of its input: "check" prints "digest HEX", "mutate K" changes K things and prints
// "mutated K", "quit" ends. The same lines give the same digests in every run.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;

public class Checksum {
    static class Item {
        String name;
        long value;
        int[] links;
        Item next;
    }

    final Random random;
    final HashMap<String, Item> map = new HashMap<>();
    final TreeMap<Long, byte[]> tree = new TreeMap<>();
    final List<StringBuilder> texts = new ArrayList<>();
    final long[] longs = new long[1 << 20];
    final double[][] table = new double[500][1000];
    final Object[] mixed = new Object[100_000];
    final ByteBuffer direct = ByteBuffer.allocateDirect(8 << 20);

    Checksum(long seed) {
        random = new Random(seed);
        Item last = null;
        for (int i = 0; i < 60_000; i++) map.put("key:" + i, last = item(last));
        for (int i = 0; i < 4_000; i++) tree.put((long) random.nextInt(), bytes());
        for (int i = 0; i < 20_000; i++) texts.add(new StringBuilder(text()));
        for (int i = 0; i < longs.length; i++) longs[i] = i * 0x9e3779b97f4a7c15L >>> (i % 40);
        for (double[] row : table) for (int i = 0; i < row.length; i++) row[i] = random.nextGaussian();
        for (int i = 0; i < mixed.length; i++) mixed[i] = mixed(i);
        while (direct.remaining() >= 8) direct.putLong(random.nextLong() & 0xffffff);
    }

    Item item(Item next) {
        Item item = new Item();
        item.name = text();
        item.value = random.nextLong();
        item.links = random.ints(4).toArray();
        item.next = next;
        return item;
    }

    byte[] bytes() {
        byte[] bytes = new byte[random.nextInt(3000)];
        random.nextBytes(bytes);
        return bytes;
    }

    String text() {
        return Integer.toHexString(random.nextInt()) + " " + random.nextInt(1000) + " some words";
    }

    Object mixed(int i) {
        switch (i % 4) {
            case 0: return random.nextLong();
            case 1: return random.nextDouble();
            case 2: return text();
            default: return new int[] {i, random.nextInt()};
        }
    }

    static long hash;

    static void add(long value) {
        hash = (hash ^ value) * 0x9e3779b97f4a7c15L;
        hash ^= hash >>> 29;
    }

    static void add(CharSequence text) {
        add(text.length());
        for (int i = 0; i < text.length(); i++) add(text.charAt(i));
    }

    static void add(Item item) {
        add(item.name);
        add(item.value);
        for (int link : item.links) add(link);
    }

    String digest() {
        hash = 1;
        // The order of a map of strings is the same in every run: it follows from their hash codes.
        for (var entry : map.entrySet()) {
            add(entry.getKey());
            add(entry.getValue());
            if (entry.getValue().next != null) add(entry.getValue().next.value);
        }
        for (var entry : tree.entrySet()) {
            add(entry.getKey());
            for (byte b : entry.getValue()) add(b);
        }
        for (StringBuilder text : texts) add(text);
        for (long value : longs) add(value);
        for (double[] row : table) for (double value : row) add(Double.doubleToLongBits(value));
        for (Object object : mixed) {
            if (object instanceof Long) add((Long) object);
            else if (object instanceof Double) add(Double.doubleToLongBits((Double) object));
            else if (object instanceof String) add((String) object);
            else for (int value : (int[]) object) add(value);
        }
        for (int i = 0; i < direct.capacity(); i += 8) add(direct.getLong(i));
        return String.format("%016x", hash);
    }

    void mutate(int count) {
        for (int n = 0; n < count; n++) {
            switch (random.nextInt(8)) {
                case 0: map.put("key:" + random.nextInt(80_000), item(null)); break;
                case 1: map.remove("key:" + random.nextInt(80_000)); break;
                case 2: tree.put((long) random.nextInt(), bytes()); break;
                case 3: tree.pollFirstEntry(); break;
                case 4: texts.get(random.nextInt(texts.size())).append(text()); break;
                case 5: longs[random.nextInt(longs.length)] ^= random.nextLong(); break;
                case 6: mixed[random.nextInt(mixed.length)] = mixed(random.nextInt(4)); break;
                default: direct.putLong(random.nextInt(1 << 20) * 8, random.nextLong());
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Checksum data = new Checksum(args.length > 0 ? Long.parseLong(args[0]) : 1);
        System.out.println("pid " + ProcessHandle.current().pid());
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.trim().split("\\s+");
            if (words[0].equals("check")) System.out.println("digest " + data.digest());
            else if (words[0].equals("mutate")) {
                data.mutate(Integer.parseInt(words[1]));
                System.out.println("mutated " + words[1]);
            } else if (words[0].equals("quit")) return;
            else System.out.println("what? " + line);
        }
    }
}
