"""A user of LibreOffice: starts it, and does in it what the lines of standard input say."""
import os, random, secrets, subprocess, sys, time, uno
from com.sun.star.beans import PropertyValue
from com.sun.star.connection import NoConnectException
from com.sun.star.sheet.GeneralFunction import SUM
from com.sun.star.table import TableSortField

WORDS = """paper river winter garden letter market window yellow morning station number little
answer silver bridge forest minute summer dinner travel friend reason matter wonder""".split()


def named(**values):
    return tuple(PropertyValue(Name=name, Value=value) for name, value in values.items())


class Office:
    def __init__(self, place):
        self.place, self.sheets, self.texts = place, [], []
        pipe = "pipe,name=clew-%s;urp" % secrets.token_hex(16)
        options = ["--headless", "--norestore", "--nologo", "--nodefault", "--accept=" + pipe]
        profile = "-env:UserInstallation=file://%s/profile" % place
        self.child = subprocess.Popen(["soffice", *options, profile], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL)
        context = uno.getComponentContext()
        resolver = context.ServiceManager.createInstance("com.sun.star.bridge.UnoUrlResolver")
        while True:
            try:
                remote = resolver.resolve("uno:%s;StarOffice.ComponentContext" % pipe)
                break
            except NoConnectException:
                if self.child.poll() is not None:
                    sys.exit("soffice ended with %s" % self.child.returncode)
                time.sleep(0.05)
        self.desktop = remote.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", remote)

    def opened(self, name, lines, **how):
        path = os.path.join(self.place, name)
        with open(path, "w") as file:
            file.writelines(lines)
        return self.desktop.loadComponentFromURL("file://" + path, "_blank", 0, named(Hidden=True, **how))

    # What is opened in the morning.

    def sheet(self, rows, seed):
        r = random.Random(seed)
        line = '%d,%s,order %d,%d,%.2f,=D%d*E%d,"=IF(F%d>100;""much"";""little"")",=F%d*1.2+D%d\n'
        lines = (line % (row, r.choice(WORDS), r.randrange(rows), r.randrange(1, 20),
                         r.lognormvariate(3, 1), row, row, row, row, row) for row in range(1, rows + 1))
        self.rows = rows
        # Commas, quotes, UTF-8, from the first line on; English; what looks like a number is one.
        how = {"FilterName": "Text - txt - csv (StarCalc)", "FilterOptions": "44,34,76,1,,1033,false,true"}
        self.sheets.append(self.opened("sheet-%d.csv" % seed, lines, **how))
        return self.sum(len(self.sheets) - 1, 5)

    def text(self, paragraphs, seed):
        r = random.Random(seed)
        lines = ("<p>%s</p>\n" % " ".join(r.choices(WORDS, k=80)) for _ in range(paragraphs))
        self.texts.append(self.opened("text-%d.html" % seed, lines, FilterName="HTML (StarWriter)"))
        return self.end(len(self.texts) - 1)

    # What is done with it later.

    def cells(self, sheet, first, last):
        table = self.sheets[sheet].Sheets.getByIndex(0)
        return table.getCellRangeByPosition(first, 0, last, self.rows - 1)

    def sum(self, sheet, column):
        return "%.2f" % self.cells(sheet, column, column).computeFunction(SUM)

    def price(self, sheet, row, price):
        """Another price: what is worked out of it follows."""
        self.cells(sheet, 4, 4).getCellByPosition(0, row % self.rows).Value = price
        return self.sum(sheet, 7)

    def sort(self, sheet, column):
        fields = (TableSortField(Field=column, IsAscending=True),)
        cells = self.cells(sheet, 0, 7)
        order = named(SortFields=uno.Any("[]com.sun.star.table.TableSortField", fields))
        uno.invoke(cells, "sort", (order,))
        return cells.getCellByPosition(2, self.rows // 2).String

    def find(self, sheet, what):
        cells = self.cells(sheet, 1, 2)
        search = cells.createSearchDescriptor()
        search.SearchString = what
        found = cells.findAll(search)
        return found.RangeAddressesAsString if found else ""

    def rename(self, sheet, what, by):
        return self.replaced(self.cells(sheet, 1, 1), what, by)

    def replaced(self, where, what, by):
        change = where.createReplaceDescriptor()
        change.SearchString, change.ReplaceString = what, by
        return where.replaceAll(change)

    def end(self, text):
        """Looks at its end, for which all of it is set. On which page that is, is not told: it may
        still be that of the text before."""
        self.texts[text].CurrentController.ViewCursor.jumpToLastPage()
        return self.texts[text].Text.End.CharHeight

    def replace(self, text, what, by):
        return self.replaced(self.texts[text], what, by), self.end(text)

    def letters(self, text, height):
        """Letters of another size: all of it is set again."""
        styles = self.texts[text].StyleFamilies.getByName("ParagraphStyles")
        styles.getByName("Text body").CharHeight = height
        return self.end(text)


if __name__ == "__main__":
    office = Office(sys.argv[1])
    for line in sys.stdin:
        name, *given = line.split()
        given = [int(word) if word.isdigit() else word for word in given]
        print(getattr(office, name)(*given), flush=True)
    office.desktop.terminate()
    office.child.wait()
