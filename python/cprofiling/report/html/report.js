'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const SVG = 'http://www.w3.org/2000/svg';
  const UNITS = [['ns', 1e6], ['µs', 1e3], ['ms', 1], ['s', 1e-3]];
  const COLOURS = 10, PER_OCTAVE = 16, PAPER = 1000, RARE = 1000;
  const KINDS = ['node', 'block', 'step', 'on the host', 'on a device', 'moment'];
  const OUTCOMES = ['', 'failed', 'cancelled', 'unfinished'];
  document.documentElement.classList.add('js');

  // ---- what all parts share

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) element.setAttribute(key, value === true ? '' : value);
    }
    element.append(...children);
    return element;
  }

  function draw(name, attributes = {}, text = null) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== null) element.textContent = text;
    return element;
  }

  // A time in ms as the tables have it: number and unit, three to four digits, or in a unit that somebody asked for.
  function timeParts(ms, wanted = '') {
    for (const [unit, per] of UNITS) {
      if (wanted && unit !== wanted) continue;
      const value = ms * per;
      let text = value.toFixed(2);
      if (wanted) return [value && Math.abs(value) < 0.01 ? value.toPrecision(2) : grouped(text), unit];
      if (Math.abs(text) >= 100) text = value.toFixed(1);
      if (Math.abs(text) < 1000 || unit === 's') return [text, unit];
    }
    return ['', ''];
  }

  const time = ns => ns ? timeParts(ns / 1e6).join(' ') : '0 s';
  const number = value => value.toLocaleString('en-US');
  const percent = share => (100 * share).toFixed(1) + ' %';
  const grouped = text => text.replace(/\B(?=(\d{3})+(?=\.))/g, ',');
  const counted = (count, one, many = one + 's') => number(count) + ' ' + (count === 1 ? one : many);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  const tip = make('div', {class: 'tip', hidden: true, 'aria-hidden': 'true'});
  document.body.append(tip);

  function showTip(event, title, lines) {
    tip.replaceChildren(make('b', {}, title), ...lines.filter(Boolean).map(line => make('div', {}, line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + 'px';
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? Math.max(4, event.clientY - box.height - 10) : event.clientY + 18) + 'px';
  }

  const hideTip = () => { tip.hidden = true; };

  // The first place in an ascending array whose value is more than the one wanted.
  function after(values, wanted) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > wanted) high = middle; else low = middle + 1;
    }
    return low;
  }

  function niceStep(span, most) {
    const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough);
  }

  function stored(key, value) {
    try {
      if (value === undefined) return localStorage.getItem(key);
      localStorage.setItem(key, value);
    } catch { /* a page of a file may have nowhere to keep it */ }
    return null;
  }

  // ---- light and dark

  function themes() {
    const button = document.getElementById('theme'), names = ['system', 'light', 'dark'];
    const show = name => {
      if (name === 'system') delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = name;
      button.textContent = 'Theme: ' + name;
      button.value = name;
    };
    show(names.includes(stored('cprofiling-theme')) ? stored('cprofiling-theme') : 'system');
    button.hidden = false;
    button.addEventListener('click', () => {
      const next = names[(names.indexOf(button.value) + 1) % names.length];
      show(next);
      stored('cprofiling-theme', next);
    });
  }

  // ---- tables

  const collator = new Intl.Collator('en', {numeric: true, sensitivity: 'base'});

  class Sheet {
    constructor(table) {
      this.table = table;
      this.info = data.tables[table.id];
      this.body = table.tBodies[0];
      this.rows = [...this.body.rows];
      this.rows.forEach((row, place) => { row.dataset.i = place; });
      for (const source of this.body.querySelectorAll('td.source bdi')) source.title = source.textContent;
      this.heads = [...table.tHead.querySelectorAll('th[data-c]')];
      this.unit = '';
      for (const head of this.heads) this.addSort(head);
      if ('tools' in table.dataset) this.addTools();
      if (this.info.opens) this.addDetails();
      this.most = this.info.opens ? 50 : 15;
      this.rest = make('button', {type: 'button', class: 'rest', hidden: true, onclick: () => {
        this.most = Infinity;
        this.update('');
        this.columns?.fit();
      }});
      this.table.closest('.scroll').after(this.rest);
      this.update('');
      this.columns?.start();
    }

    value(row, column) { return this.info.rows[row.dataset.i][column]; }

    addSort(head) {
      const label = head.firstChild, button = make('button', {type: 'button', class: 'sort'});
      head.replaceChild(button, label);
      button.append(label);
      if (head.title) button.setAttribute('aria-description', head.title);
      button.addEventListener('click', () => this.sort(head));
    }

    sort(head) {
      const column = Number(head.dataset.c), isText = ['text', 'source'].includes(this.info.kinds[column]);
      const before = head.getAttribute('aria-sort');
      const descending = before ? before === 'ascending' : !isText;
      for (const other of this.heads) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
      const sign = descending ? -1 : 1;
      this.rows.sort((a, b) => {
        const x = this.value(a, column), y = this.value(b, column);
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (isText ? collator.compare(x, y) : x - y);
      });
      this.body.append(...this.rows.flatMap(row => row.detail ? [row, row.detail] : [row]));
      this.update(`sorted by ${this.title(head)}, ${descending ? 'descending' : 'ascending'}`);
      this.columns?.fit();
    }

    title(head) {
      return (head.dataset.group ? head.dataset.group + ', ' : '') + head.querySelector('button').textContent;
    }

    addTools() {
      const name = this.table.id, kinds = this.info.kinds;
      const tools = make('div', {class: 'tools'});
      this.query = make('input', {type: 'search', id: name + '-filter', autocomplete: 'off', spellcheck: 'false', oninput: () => this.filter()});
      tools.append(make('label', {for: name + '-filter'}, 'Filter ', this.query));
      this.stages = this.heads.find(head => head.textContent.startsWith('Stage'));
      if (this.stages) {
        const column = Number(this.stages.dataset.c), known = [...new Set(this.rows.map(row => row.cells[column].textContent))];
        this.stage = make('select', {id: name + '-stage', onchange: () => this.filter()}, make('option', {value: ''}, 'all'),
          ...known.map((stage, place) => make('option', {value: place + 1}, stage || '(none)')));
        this.known = known;
        if (known.length > 1) tools.append(make('label', {for: name + '-stage'}, 'Stage ', this.stage));
      }
      if (kinds.includes('time')) {
        const select = make('select', {id: name + '-unit', onchange: () => this.show(select.value)}, make('option', {value: ''}, 'that fits'),
          ...UNITS.map(([unit]) => make('option', {value: unit}, unit)));
        tools.append(make('label', {for: name + '-unit'}, 'Unit ', select));
      }
      if (this.info.ranks.some(rank => rank > 0)) {
        this.columns = new Columns(this);
        tools.append(this.columns.chooser);
      }
      this.said = make('span', {class: 'said', role: 'status'});
      tools.append(this.said);
      this.table.closest('.scroll').before(tools);
    }

    // Shows the first of the rows that match, and says how many there are.
    update(what) {
      const matching = this.rows.filter(row => !row.left);
      matching.forEach((row, place) => { row.hidden = place >= this.most; });
      for (const row of this.rows) {
        if (row.left) row.hidden = true;
        if (row.detail) row.detail.hidden = row.hidden;
      }
      this.rest.hidden = matching.length <= this.most;
      this.rest.textContent = `Show all ${number(matching.length)} rows`;
      if (!this.said) return;
      const all = counted(this.rows.length, 'row');
      const first = matching.length > this.most ? `, the first ${number(this.most)} shown` : '';
      this.said.textContent = (matching.length < this.rows.length ? `${number(matching.length)} of ${all}` : all) + first + (what && ', ' + what);
    }

    filter() {
      const words = this.query.value.toLowerCase().split(/\s+/).filter(Boolean);
      const stage = this.stage && this.stage.value ? this.known[this.stage.value - 1] : null;
      const texts = this.info.kinds.flatMap((kind, column) => kind === 'text' ? [column] : []);
      for (const row of this.rows) {
        const text = texts.map(column => this.value(row, column) ?? '').join('\n').toLowerCase();
        row.left = !words.every(word => text.includes(word)) ||
          (stage !== null && this.value(row, Number(this.stages.dataset.c)) !== stage);
      }
      this.update('');
    }

    show(unit) {
      this.unit = unit;
      this.info.kinds.forEach((kind, column) => {
        if (kind !== 'time' && kind !== 'difference') return;
        for (const row of this.rows) {
          const value = this.value(row, column);
          if (value === null) continue;
          const [text, shown] = timeParts(value, unit);
          row.cells[column].replaceChildren(kind === 'difference' && value > 0 ? '+' + text : text, make('i', {}, shown));
        }
      });
      this.columns?.fit();
    }

    addDetails() {
      for (const row of this.rows) {
        const cell = row.cells[0], name = cell.firstChild;
        const button = make('button', {type: 'button', class: 'open', 'aria-expanded': 'false'});
        cell.replaceChild(button, name);
        button.append(name);
        if (!name.textContent.trim()) button.setAttribute('aria-label', 'node without a name');
        button.addEventListener('click', () => this.toggle(row, button));
        button.addEventListener('keydown', event => this.move(event, row));
      }
    }

    move(event, row) {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step) return;
      const shown = this.rows.filter(other => !other.hidden), next = shown[shown.indexOf(row) + step];
      if (next) {
        event.preventDefault();
        next.cells[0].querySelector('button').focus();
      }
    }

    toggle(row, button) {
      const opens = !row.detail;
      button.setAttribute('aria-expanded', opens);
      if (!opens) {
        row.detail.remove();
        delete row.detail;
        return;
      }
      const inside = make('div', {class: 'inside'});
      const histogram = drawHistogram(this, row);
      if (histogram) inside.append(histogram);
      const list = make('dl');
      let group;
      this.heads.forEach(head => {
        const column = Number(head.dataset.c), kind = this.info.kinds[column], cell = row.cells[column];
        if (kind === 'source' && this.value(row, column) !== null) inside.append(sourceLine(this.value(row, column)));
        if (['text', 'chart', 'source'].includes(kind)) return;
        const shown = make('dd');
        for (const node of cell.childNodes) if (node.nodeName !== 'svg') shown.append(node.cloneNode(true));
        const begins = head.dataset.group !== group ? 'begins' : '';
        group = head.dataset.group;
        list.append(make('div', {class: begins}, make('dt', {}, this.title(head)), shown));
      });
      inside.append(list);
      row.detail = make('tr', {class: 'detail'}, make('td', {colspan: row.cells.length}, inside));
      row.after(row.detail);
    }
  }

  // ---- what somebody has chosen, kept in the page's address

  const kept = new URLSearchParams(location.search);

  function keep(key, value) {
    if ((kept.get(key) || '') === (value || '')) return;
    if (value) kept.set(key, value); else kept.delete(key);
    try {
      history.replaceState(null, '', (`${kept}` ? '?' + kept : location.pathname) + location.hash);
    } catch { /* the page of a frame may have no address of its own */ }
  }

  // ---- which columns of a table are shown: those that somebody chose, or as many as there is room for

  const PAPER_ROOM = 1400;  // pixels of a table on the screen that fit on A4 across

  class Columns {
    constructor(sheet) {
      this.sheet = sheet;
      this.heads = sheet.heads.filter(head => head.dataset.c !== '0');
      this.chosen = null;
      this.style = new CSSStyleSheet();
      document.adoptedStyleSheets.push(this.style);
      this.boxes = new Map(this.heads.map(head => [head, make('input', {type: 'checkbox', onchange: () => {
        this.choose(this.heads.filter(each => this.boxes.get(each).checked));
      }})]));
      this.summary = make('summary', {});
      const labels = this.heads.map(head => make('label', {}, this.boxes.get(head), sheet.title(head)));
      const button = (text, heads) => make('button', {type: 'button', onclick: () => this.choose(heads)}, text);
      this.chooser = make('details', {class: 'columns'}, this.summary, make('div', {class: 'choices', role: 'group', 'aria-label': 'Columns that are shown'},
        make('div', {class: 'tools'}, button('All', this.heads), button('As many as fit', null)), ...labels));
      this.chooser.addEventListener('keydown', event => {
        if (event.key !== 'Escape') return;
        this.chooser.open = false;
        this.summary.focus();
      });
      addEventListener('click', event => { if (!this.chooser.contains(event.target)) this.chooser.open = false; });
    }

    start() {
      this.notes = [...(document.getElementById(this.sheet.table.id + '-notes')?.querySelectorAll('li') ?? [])];
      this.marks = new Map();  // of the notes: the columns that have them
      for (const mark of this.sheet.body.querySelectorAll('sup')) {
        const number = Number(mark.textContent);
        this.marks.set(number, (this.marks.get(number) ?? new Set()).add(String(mark.parentElement.cellIndex)));
      }
      const names = kept.get(this.sheet.table.id)?.split(',');
      this.chosen = names ? this.heads.filter(head => names.includes(this.sheet.title(head))) : null;
      this.fit();
      addEventListener('resize', () => this.fit());
      addEventListener('beforeprint', () => this.fit(PAPER_ROOM));
      addEventListener('afterprint', () => this.fit());
    }

    choose(heads) {
      this.chosen = heads;
      keep(this.sheet.table.id, heads?.map(head => this.sheet.title(head)).join(','));
      this.fit();
    }

    // Shows what was chosen; else the columns that are needed most, until the table is as wide as the page has room.
    fit(room = this.sheet.table.parentElement.clientWidth) {
      if (this.chosen) return this.show(this.chosen);
      const ranks = this.sheet.info.ranks, rank = head => ranks[head.dataset.c];
      this.show(this.heads);
      let left = room - this.sheet.heads[0].offsetWidth;
      const shown = this.heads.filter(head => rank(head) < RARE).sort((a, b) => rank(a) - rank(b)).filter(head => {
        const fits = head.offsetWidth <= left;
        if (fits) left -= head.offsetWidth;
        return fits;
      });
      this.show(shown);
    }

    show(shown) {
      const table = this.sheet.table, hidden = this.heads.filter(head => !shown.includes(head));
      this.style.replaceSync(hidden.map(({dataset: {c}}) =>
        `#${table.id} th[data-c="${c}"], #${table.id} > tbody > tr:not(.detail) > :nth-child(${Number(c) + 1}) { display: none; }`).join(''));
      let at = 0;
      for (const group of table.tHead.querySelectorAll('.group')) {
        group.dataset.size ??= group.colSpan;
        const heads = this.heads.filter(head => head.dataset.group).slice(at, at += Number(group.dataset.size));
        const count = heads.filter(head => shown.includes(head)).length;
        group.hidden = !count;
        group.colSpan = Math.max(count, 1);
      }
      for (const [head, box] of this.boxes) box.checked = shown.includes(head);
      for (const note of this.notes) note.hidden = !shown.some(head => this.marks.get(note.value)?.has(head.dataset.c));
      this.summary.textContent = `Columns: ${shown.length + 1} of ${this.heads.length + 1}`;
      table.style.setProperty('--first', this.sheet.heads[0].offsetWidth + 'px');
    }
  }

  // The file and the line of a node's function, to be copied.
  function sourceLine(source) {
    const text = make('code', {}, source);
    const copy = make('button', {type: 'button', onclick: async () => {
      getSelection().selectAllChildren(text);
      try {
        await navigator.clipboard.writeText(source);
      } catch {
        document.execCommand('copy');
      }
      copy.textContent = 'Copied';
    }}, 'Copy');
    return make('p', {class: 'source'}, text, ' ', copy);
  }

  // A node's samples, large, on an axis of their own.
  function drawHistogram(sheet, row) {
    const series = sheet.info.bins[row.dataset.i].map(flat => {
      const pairs = [];
      for (let at = 0; at < flat.length; at += 2) pairs.push([flat[at], flat[at + 1]]);
      return pairs;
    });
    const places = series.flat().map(([place]) => place);
    if (!places.length) return null;
    const first = Math.min(...places) - 2, last = Math.max(...places) + 3;
    const width = 720, height = 190, bottom = height - 22, top = 30, left = 8;
    const x = place => left + (place - first) / (last - first) * (width - 2 * left);
    const at = ms => x(PER_OCTAVE * Math.log2(Math.max(ms * 1e6, 1)));
    const edge = place => time(2 ** (place / PER_OCTAVE));
    const words = series.map(pairs => pairs.length
      ? `${counted(pairs.reduce((sum, [, count]) => sum + count, 0), 'sample')} from ${edge(pairs[0][0])} to ${edge(pairs.at(-1)[0] + 1)}`
      : 'no samples');
    const svg = draw('svg', {class: 'histogram', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `Distribution: ${words.join('; before: ')}`});
    for (const [place, text] of ticks(first, last)) {
      svg.append(draw('path', {class: 'grid', d: `M${x(place)} ${top}V${bottom + 4}`}));
      svg.append(draw('text', {x: x(place), y: height - 5, 'text-anchor': 'middle'}, text));
    }
    svg.append(draw('path', {class: 'grid', d: `M${left} ${bottom}H${width - left}`}));
    series.forEach((pairs, run) => {
      const most = Math.max(1, ...pairs.map(([, count]) => count));
      const d = pairs.map(([place, count]) => {
        const high = Math.max(Math.sqrt(count / most) * (bottom - top), 2);
        return `M${x(place).toFixed(1)} ${bottom}v${-high.toFixed(1)}H${x(place + 1).toFixed(1)}V${bottom}`;
      }).join('');
      svg.append(draw('path', {class: 'h' + run, d}));
    });
    if (series.length === 1) addQuantiles(svg, sheet, row, at, top, bottom);
    return svg;
  }

  function* ticks(first, last) {
    const decades = [];
    for (let power = Math.ceil(first / PER_OCTAVE * Math.log10(2)); power <= last / PER_OCTAVE * Math.log10(2); power++) decades.push(power);
    const factors = decades.length > 4 ? [1] : decades.length > 1 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
    const powers = decades.length ? [decades[0] - 1, ...decades] : [Math.floor(first / PER_OCTAVE * Math.log10(2))];
    let before = -Infinity;
    for (const power of powers) {
      for (const factor of factors) {
        const place = PER_OCTAVE * Math.log2(factor * 10 ** power);
        if (place < first || place > last || (place - before) / (last - first) < 0.08) continue;
        before = place;
        const [value, unit] = timeParts(factor * 10 ** power / 1e6);
        yield [place, `${Number(value)} ${unit}`];
      }
    }
  }

  function addQuantiles(svg, sheet, row, at, top, bottom) {
    let before = -Infinity;
    for (const name of ['p50', 'p90', 'p99', 'p99.9']) {
      const head = sheet.heads.find(each => each.querySelector('button').textContent === name);
      const value = head ? sheet.value(row, Number(head.dataset.c)) : null;
      if (value === null) continue;
      const x = at(value);
      svg.append(draw('path', {class: 'q', d: `M${x} ${top - 4}V${bottom}`}));
      if (x - before < 34) continue;
      before = x;
      svg.append(draw('text', {class: 'name', x, y: top - 9, 'text-anchor': 'middle'}, name));
    }
  }

  // ---- what timelines and icicles share: the colours of names, those with most time first

  function colours(run) {
    const times = new Float64Array(run.names.length);
    if (run.timeline) {
      for (const track of run.timeline.tracks) {
        const names = numbers(track.name);
        numbers(track.time).forEach((span, at) => { times[names[at]] += span; });
      }
    } else if (run.icicle) {
      run.icicle.name.forEach((name, at) => { times[name] += run.icicle.total[at]; });
    }
    const colour = new Uint8Array(times.length);
    [...times.keys()].sort((a, b) => times[b] - times[a]).forEach((name, rank) => { colour[name] = rank % COLOURS; });
    return colour;
  }

  const pick = (list, at) => typeof list === 'number' ? list : list[at];
  const fits = (text, width) => {
    const room = Math.floor((width - 6) / 6.3);
    if (room < 2) return '';
    return text.length <= room ? text : [...text].slice(0, room - 1).join('') + '…';
  };

  function keysHint(pairs) {
    const hint = make('p', {class: 'hint keys'});
    for (const [keys, meaning] of pairs) hint.append(make('span', {}, ...keys.flatMap(key => [make('kbd', {}, key), ' ']), meaning));
    return hint;
  }

  // On paper a drawing is as wide as it is there, whatever it was on the screen.
  function fitPaper(svg, starts) {
    const box = {viewBox: `0 0 ${PAPER} ${svg.getAttribute('height')}`, preserveAspectRatio: 'xMinYMin meet'};
    for (const [name, value] of Object.entries(box)) {
      if (starts) svg.setAttribute(name, value); else svg.removeAttribute(name);
    }
  }

  const button = (label, title, act) => make('button', {type: 'button', title, 'aria-label': title, onclick: act}, label);

  // A text as names are shown: with escapes for what does not print, or turns the direction of writing.
  const escaped = text => text.replace(/[\x00-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    character => '\\u' + character.charCodeAt(0).toString(16).padStart(4, '0'));

  // What is compressed in the page.
  function unpacked(text) {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let at = 0; at < bytes.length; at++) bytes[at] = packed.charCodeAt(at);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).json();
  }

  // Numbers, of which there are the lowest digits to base 64, then the next ones.
  function numbers(digits) {
    const values = new Array(digits[0].length).fill(0);
    digits.forEach((text, power) => {
      for (let at = 0; at < text.length; at++) values[at] += (text.charCodeAt(at) - 48) * 64 ** power;
    });
    return values;
  }

  // Names are searched, and one of what is drawn is chosen and told of in a panel.
  class Drawing {
    searchTools(id) {
      this.query = make('input', {type: 'search', id, autocomplete: 'off', spellcheck: 'false', oninput: () => this.search(), onkeydown: event => {
        if (event.key === 'Enter') { event.preventDefault(); this.step(event.shiftKey ? -1 : 1); this.zoomToChosen(); }
        if (event.key === 'Escape') this.stage.focus();
      }});
      this.found = make('span', {class: 'said', role: 'status'});
      this.hits = [];
      return [make('label', {for: id}, 'Search ', this.query),
        button('Previous', 'Previous match', () => this.step(-1)), button('Next', 'Next match', () => this.step(1)), this.found];
    }

    search() {
      const query = this.query.value.toLowerCase();
      this.hit = query ? this.run.names.map(name => name.toLowerCase().includes(query)) : null;
      this.hits = query ? this.matches() : [];
      this.found.textContent = query ? counted(this.hits.reduce((sum, hit) => sum + this.weight(hit), 0), 'match', 'matches') : '';
      this.later();
    }

    // The next match, or the next beside the chosen one.
    step(by) {
      const list = this.hits.length ? this.hits : this.query.value ? [] : this.row();
      if (!list.length) return;
      const at = list.indexOf(this.chosen);
      this.choose(list[at < 0 ? (by > 0 ? 0 : list.length - 1) : (at + by + list.length) % list.length]);
    }

    panel(what, of) {
      this.what = what;
      this.text = make('p', {class: 'chosen-text'});
      this.facts = make('dl');
      this.more = make('dl', {class: 'more'});
      return make('div', {class: 'panel', role: 'region', 'aria-label': `Selected ${what} of ${of}`, tabindex: '0'},
        make('div', {role: 'status'}, this.text, this.facts), this.more);
    }

    // Tells of the chosen one: facts and more are pairs of labels and texts, of which empty ones are left out.
    tell(lead, facts, more = []) {
      const hit = this.hits.indexOf(this.chosen), list = pairs => pairs.filter(([, text]) => text).map(([label, text]) =>
        make('div', {}, make('dt', {}, make('bdi', {}, label)), make('dd', {}, make('bdi', {}, text))));
      if (hit >= 0) this.found.textContent = `${number(hit + 1)} of ${number(this.hits.length)}`;
      this.text.replaceChildren(...this.chosen < 0 ? [`No ${this.what} is selected.`] : [make('bdi', {}, make('b', {}, this.name(this.chosen) || '(no name)')), ': ' + lead]);
      this.facts.replaceChildren(...list(facts));
      this.more.replaceChildren(...list(more));
    }

    later() {
      if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.redraw(); });
    }
  }

  // ---- the timeline

  const LANE = 18, GAP = 8, HEAD = 18, OVERVIEW = 30, RULER = 22;

  class Timeline extends Drawing {
    constructor(root, run, label) {
      super();
      Object.assign(this, {root, run, label, whole: Math.max(run.timeline.time, 1)});
      this.colour = colours(run);
      this.from = 0;
      this.to = this.whole;
      this.chosen = -1;
      this.range = null;
      this.pointer = null;
      this.details = [[], [], []];  // stages, traces and arguments of spans, once they are unpacked
      this.unpack();
      this.build();
      this.choose(-1);
      this.filter();
      root.hidden = false;
      new ResizeObserver(() => this.redraw()).observe(this.root);
      this.redraw();
      (window.requestIdleCallback || setTimeout)(() => this.unpackDetails());
    }

    async unpackDetails() {
      try {
        for (const [at, text] of this.run.timeline.details.entries()) this.details[at] = await unpacked(text);
      } catch { /* a browser without decompression */ }
      if (this.chosen >= 0) this.tellChosen();
    }

    // Of each depth of each track a lane: its spans do not overlap, so that starts and ends ascend.
    unpack() {
      this.lanes = [];
      this.starts = []; this.ends = []; this.names = []; this.counts = []; this.outcomes = []; this.kinds = []; this.laneOf = [];
      this.heads = [];
      this.spans = 0;
      let y = 4, process = null;
      this.run.timeline.tracks.forEach((track, number) => {
        if (track.process !== process) {
          process = track.process;
          this.heads.push({y, text: process, className: 'process'});
          y += HEAD;
        }
        this.heads.push({y, text: track.thread, className: 'thread'});
        y += HEAD - 2;
        const lanes = [], begun = [], ended = [], times = numbers(track.time), names = numbers(track.name);
        numbers(track.gap).forEach((twice, at) => {
          const depth = pick(track.depth, at), gap = twice % 2 ? -(twice + 1) / 2 : twice / 2;
          const start = gap + Math.max(begun[depth - 1] ?? 0, ended[depth] ?? 0);
          begun[depth] = start;
          ended[depth] = start + times[at];
          while (lanes.length <= depth) lanes.push({track: number, depth: lanes.length, y: y + lanes.length * LANE, spans: []});
          lanes[depth].spans.push(this.starts.length);
          this.starts.push(start);
          this.ends.push(ended[depth]);
          this.names.push(names[at]);
          this.counts.push(pick(track.count, at));
          this.outcomes.push(pick(track.outcome, at));
          this.kinds.push(pick(track.kind, at));
          this.spans += pick(track.count, at);
        });
        y += lanes.length * LANE + GAP;
        this.lanes.push(...lanes);
      });
      this.height = y;
      this.laneOf = new Int32Array(this.starts.length);
      this.lanes.forEach((lane, number) => {
        lane.ends = Float64Array.from(lane.spans, span => this.ends[span]);
        lane.all = {spans: lane.spans, ends: lane.ends};
        for (const span of lane.spans) this.laneOf[span] = number;
      });
    }

    build() {
      const id = 'least-' + this.root.dataset.run;
      this.least = make('input', {id, size: 7, placeholder: '0.1 ms', value: kept.get(id), autocomplete: 'off', spellcheck: 'false', oninput: () => this.filter()});
      this.hidden = make('span', {class: 'said', role: 'status'});
      this.tools = make('div', {class: 'tools'},
        button('+', 'Zoom in', () => this.zoom(0.5)), button('−', 'Zoom out', () => this.zoom(2)),
        button('◀', 'Earlier', () => this.pan(-0.25)), button('▶', 'Later', () => this.pan(0.25)),
        button('Whole recording', 'Show the whole recording', () => this.view(0, this.whole)),
        button('Sum up', 'Sum up what is shown, by name', () => this.select(this.from, this.to)),
        make('label', {for: id, title: 'Hides spans that are shorter'}, 'At least ', this.least),
        ...this.searchTools('find-' + this.root.dataset.run), this.hidden);
      this.overview = draw('svg', {class: 'overview', height: OVERVIEW, 'aria-hidden': 'true'});
      this.ruler = draw('svg', {class: 'ruler', height: RULER, 'aria-hidden': 'true'});
      this.svg = draw('svg', {height: this.height, 'aria-hidden': 'true'});
      this.hatch = draw('pattern', {id: 'hatch-' + this.root.dataset.run, class: 'hatch', width: 4, height: 4, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'});
      this.hatch.append(draw('path', {d: 'M0 0v4'}));
      this.stage = make('div', {class: 'lanes', tabindex: '0', role: 'application', 'aria-roledescription': 'timeline', onscroll: () => this.later(),
        'aria-label': `Timeline of ${this.label}: ${counted(this.spans, 'span')} in ${time(this.whole)}. Arrow keys or A and D move, W and S zoom, N and P go from span to span.`}, this.svg);
      this.status = make('p', {class: 'hint status'});
      this.sums = make('div', {class: 'sums', role: 'status'});
      this.keys = keysHint([[['A', 'D', '←', '→'], 'earlier, later'], [['W', 'S', '+', '−'], 'zoom at the pointer'], [['Home'], 'whole recording'], [['↑', '↓'], 'what is around, inside'],
        [['P', 'N'], 'previous, next span or match'], [['F', 'Enter'], 'zoom to it'], [['/'], 'search'], [['Drag'], 'sum up'], [['Shift', 'drag'], 'move'],
        [['Ctrl', 'wheel'], 'zoom; once clicked, the wheel alone']]);
      const all = make('div', {class: 'stage'}, this.overview, this.ruler, this.stage);
      this.root.append(this.tools, all, this.status, this.panel('span', this.label), this.sums, this.keys);
      this.stage.addEventListener('keydown', event => this.key(event));
      all.addEventListener('wheel', event => this.wheel(event), {passive: false});
      this.listen();
    }

    listen() {
      let drag = null;
      this.svg.addEventListener('pointerdown', event => {
        if (event.button) return;
        drag = {x: event.clientX, from: this.from, to: this.to, start: this.timeAt(event), moved: false, moves: event.shiftKey};
        this.stage.focus({preventScroll: true});
      });
      this.svg.addEventListener('pointermove', event => {
        this.pointer = this.timeAt(event);
        if (!drag) return this.hover(event);
        const by = event.clientX - drag.x;
        if (!drag.moved && Math.abs(by) < 4) return;
        if (!drag.moved) this.svg.setPointerCapture(event.pointerId);
        drag.moved = true;
        hideTip();
        const shift = by / this.width * (drag.to - drag.from);
        if (drag.moves) this.view(drag.from - shift, drag.to - shift); else this.select(drag.start, this.pointer);
      });
      this.svg.addEventListener('pointerup', event => {
        if (drag && !drag.moved) this.choose(this.at(event)[0]);
        drag = null;
      });
      this.svg.addEventListener('pointercancel', () => { drag = null; });
      this.svg.addEventListener('pointerleave', () => { this.pointer = null; hideTip(); });
      this.svg.addEventListener('dblclick', () => this.zoomToChosen());
      const jump = event => {
        if (event.buttons !== 1) return;
        const middle = event.offsetX / this.width * this.whole, half = (this.to - this.from) / 2;
        this.view(middle - half, middle + half);
      };
      this.overview.addEventListener('pointerdown', event => { this.overview.setPointerCapture(event.pointerId); jump(event); });
      this.overview.addEventListener('pointermove', jump);
    }

    view(from, to) {
      const span = clamp(to - from, Math.min(20, this.whole), this.whole);
      from = clamp((from + to) / 2 - span / 2, 0, this.whole - span);
      this.from = from;
      this.to = from + span;
      this.later();
    }

    zoom(factor, around = this.middle()) {
      this.view(around - (around - this.from) * factor, around + (this.to - around) * factor);
    }

    timeAt(event) {
      return this.from + (event.clientX - this.svg.getBoundingClientRect().left) / this.width * (this.to - this.from);
    }

    middle() {
      if (this.pointer !== null) return this.pointer;
      const chosen = this.chosen >= 0 ? (this.starts[this.chosen] + this.ends[this.chosen]) / 2 : -1;
      return chosen >= this.from && chosen <= this.to ? chosen : (this.from + this.to) / 2;
    }

    pan(share) {
      const by = share * (this.to - this.from);
      this.view(this.from + by, this.to + by);
    }

    zoomToChosen() {
      if (this.chosen < 0) return;
      const start = this.starts[this.chosen], time = Math.max(this.ends[this.chosen] - start, 10);
      this.view(start - time * 0.1, start + time * 1.1);
    }

    wheel(event) {
      const isOurs = event.ctrlKey || event.metaKey || this.stage === document.activeElement;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || (event.shiftKey && isOurs)) {
        event.preventDefault();
        this.pan((event.deltaX || event.deltaY) / this.width);
      } else if (isOurs) {
        event.preventDefault();
        this.zoom(1.0015 ** clamp(event.deltaY, -400, 400), this.timeAt(event));
      }
    }

    key(event) {
      if (event.target !== this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
      const acts = {
        ArrowLeft: () => this.pan(-0.1), ArrowRight: () => this.pan(0.1), a: () => this.pan(-0.1), d: () => this.pan(0.1),
        '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), w: () => this.zoom(0.5), '-': () => this.zoom(2), '−': () => this.zoom(2), s: () => this.zoom(2), Home: () => this.view(0, this.whole), 0: () => this.view(0, this.whole),
        ArrowUp: () => this.vertical(-1), ArrowDown: () => this.vertical(1), n: () => this.step(1), p: () => this.step(-1),
        Enter: () => this.zoomToChosen(), f: () => this.zoomToChosen(), '/': () => this.query.focus(), Escape: () => { this.select(null); this.choose(-1); },
      };
      const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    }

    // The spans of the lane.
    row() {
      return (this.chosen >= 0 ? this.lanes[this.laneOf[this.chosen]] : this.lanes.find(lane => lane.spans.length))?.spans ?? [];
    }

    // Hides spans that are shorter than somebody wants.
    filter() {
      const text = this.least.value.trim(), found = /^(\d*\.?\d+)\s*(ns|us|[µμ]s|ms|s)?$/.exec(text);
      const least = found ? found[1] * {n: 1, u: 1e3, µ: 1e3, μ: 1e3, m: 1e6, s: 1e9}[(found[2] || 'ms')[0]] : 0;
      const isLong = span => this.ends[span] - this.starts[span] >= least && (this.counts[span] < 2 || least < this.run.timeline.below);
      let hidden = this.spans;
      for (const lane of this.lanes) {
        lane.spans = least ? lane.all.spans.filter(isLong) : lane.all.spans;
        lane.ends = least ? Float64Array.from(lane.spans, span => this.ends[span]) : lane.all.ends;
        for (const span of lane.spans) hidden -= this.counts[span];
      }
      if (found || !text) this.least.removeAttribute('aria-invalid'); else this.least.setAttribute('aria-invalid', 'true');
      this.hidden.textContent = text && !found ? 'Give a time, such as 0.1 ms or 50 µs' : hidden ? counted(hidden, 'shorter span is', 'shorter spans are') + ' hidden' : '';
      keep(this.least.id, least ? text : '');
      if (this.chosen >= 0 && !isLong(this.chosen)) this.choose(-1);
      this.search();
    }

    // What is around or inside the chosen span, or on the next lane that has something there.
    vertical(by) {
      if (this.chosen < 0) return this.step(1);
      const start = this.starts[this.chosen], end = this.ends[this.chosen];
      for (let number = this.laneOf[this.chosen] + by; number >= 0 && number < this.lanes.length; number += by) {
        const lane = this.lanes[number], at = after(lane.ends, start);
        if (at < lane.spans.length && this.starts[lane.spans[at]] <= end) return this.choose(lane.spans[at]);
      }
    }

    choose(span) {
      this.chosen = span ?? -1;
      this.tellChosen();
      this.redrawChosen();
      if (this.chosen < 0) return;
      const start = this.starts[this.chosen], end = this.ends[this.chosen], view = this.to - this.from;
      if (start > this.to || end < this.from || (start < this.from && end > this.to && view < (end - start) / 50)) {
        this.view((start + end - view) / 2, (start + end + view) / 2);
      }
      const lane = this.lanes[this.laneOf[this.chosen]], box = this.stage;
      if (lane.y < box.scrollTop || lane.y + LANE > box.scrollTop + box.clientHeight) box.scrollTop = lane.y - box.clientHeight / 2;
    }

    tellChosen() {
      const span = this.chosen;
      if (span < 0) return this.tell('', []);
      const [stage, half, args] = this.details.map(list => list[span]), track = this.track(span), count = this.counts[span];
      const around = this.around(span), own = this.self(span, this.starts[span], this.ends[span]), long = this.ends[span] - this.starts[span];
      const trace = half && half + this.details[1].at(-1).substr(16 * this.details[1].slice(0, span).filter(Boolean).length, 16);
      const mayRaise = this.kinds[span] < 2 && count < 2;
      const facts = [
        ['Usual', count > 1 ? '' : this.usual(span)], ['Inside', count > 1 ? '' : this.inside(span)], ['Self', count > 1 ? '' : time(own) + (long ? `, ${percent(own / long)}` : '')], ['Parent', around < 0 ? 'none' : this.name(around) || '(no name)'],
        ['Stage', stage], ['Start', exactTime(this.starts[span], Math.max(niceStep(Math.max(long, 1), 1000), 1), this.starts[span])],
        ['Thread', track.thread], ['Process', track.process], ['Kind', KINDS[this.kinds[span]]],
        ['Source', this.kinds[span] === 0 && count < 2 ? this.run.sources[this.names[span]] : ''], ['Error', OUTCOMES[this.outcomes[span]] || (mayRaise ? 'none' : '')], ['Trace id', trace],
      ];
      const told = new Set(facts.map(([label, text]) => `${label.toLowerCase().replace(' ', '_')} ${text}`));  // as our traces name them
      this.tell(this.lead(span), facts, args ? argumentsOf(args).filter(pair => !told.has(pair.join(' '))) : []);
    }

    // The median of the spans of its name, "" for a single one.
    usual(span) {
      const times = [];
      for (let other = 0; other < this.names.length; other++) {
        if (this.names[other] === this.names[span] && this.counts[other] === 1) times.push(this.ends[other] - this.starts[other]);
      }
      times.sort((a, b) => a - b);
      return times.length < 2 ? '' : `${time(times[times.length >> 1])}, median of ${number(times.length)}`;
    }

    // The longest of what is directly inside it, by name.
    inside(span) {
      const lane = this.beside(this.laneOf[span], 1)?.all, sums = new Map();
      for (let at = lane ? after(lane.ends, this.starts[span]) : 0; lane && at < lane.spans.length && this.ends[lane.spans[at]] <= this.ends[span]; at++) {
        const child = lane.spans[at];
        sums.set(this.names[child], (sums.get(this.names[child]) ?? 0) + this.ends[child] - this.starts[child]);
      }
      return [...sums].sort(([, a], [, b]) => b - a).slice(0, 3).map(([name, ns]) => `${this.run.names[name] || '(no name)'} ${time(ns)}`).join(', ');
    }

    name(span) { return this.run.names[this.names[span]]; }

    // The lane above or below, of the same track.
    beside(lane, by) {
      const other = this.lanes[lane + by];
      return other && other.track === this.lanes[lane].track ? other : null;
    }

    // What is around a span, or -1.
    around(span) {
      for (let number = this.laneOf[span], lane; (lane = this.beside(number, -1)); number--) {
        const other = lane.all.spans[after(lane.all.ends, this.starts[span])];
        if (other !== undefined && this.starts[other] <= this.starts[span] && this.ends[other] >= this.ends[span]) return other;
      }
      return -1;
    }

    // The time of a span between two moments without what is inside it.
    self(span, from, to) {
      const lane = this.beside(this.laneOf[span], 1)?.all;
      from = Math.max(from, this.starts[span]);
      to = Math.min(to, this.ends[span]);
      let own = to - from;
      for (let at = lane ? after(lane.ends, from) : 0; lane && at < lane.spans.length && this.starts[lane.spans[at]] < to; at++) {
        if (this.ends[lane.spans[at]] <= this.ends[span]) own -= Math.min(this.ends[lane.spans[at]], to) - Math.max(this.starts[lane.spans[at]], from);
      }
      return own;
    }

    // Chooses a range of time, and tells its sums by name; null: none.
    select(start, end) {
      this.range = start === null ? null : [clamp(Math.min(start, end), 0, this.whole), clamp(Math.max(start, end), 0, this.whole)];
      this.sums.replaceChildren(...this.range ? this.table(...this.range) : []);
      this.redrawChosen();
    }

    table(from, to) {
      const sums = new Map();
      let spans = 0;
      for (const lane of this.lanes) {
        for (let at = after(lane.ends, from); at < lane.spans.length && this.starts[lane.spans[at]] < to; at++) {
          const span = lane.spans[at], sum = sums.get(this.names[span]) || {count: 0, total: 0, self: 0};
          sum.count += this.counts[span];
          sum.total += Math.min(this.ends[span], to) - Math.max(this.starts[span], from);
          sum.self += this.self(span, from, to);
          spans += this.counts[span];
          sums.set(this.names[span], sum);
        }
      }
      const rows = [...sums].sort(([, a], [, b]) => b.self - a.self), cells = (tag, texts) => texts.map((text, at) => make(tag, at ? {} : {class: 'text'}, at ? text : make('bdi', {}, text)));
      const body = rows.slice(0, 12).map(([name, sum]) => make('tr', {}, ...cells('td', [this.run.names[name] || '(no name)', number(sum.count), time(sum.self), time(sum.total)])));
      const more = rows.length > 12 ? ` The first 12 of ${number(rows.length)} names:` : '';
      return [make('p', {}, `${counted(spans, 'span')} in ${this.moments(from, to)}.${more}`),
        make('table', {}, make('thead', {}, make('tr', {}, ...cells('th', ['Name', 'Spans', 'Self', 'Total']))), make('tbody', {}, ...body))];
    }

    // From when to when, with as many digits as that takes.
    moments(from, to) {
      const step = Math.max(niceStep(to - from, 1000), 1);
      return `${exactTime(from, step, to)} to ${exactTime(to, step, to)} (${time(to - from)})`;
    }

    track(span) { return this.run.timeline.tracks[this.lanes[this.laneOf[span]].track]; }

    lead(span) {
      const count = this.counts[span], shown = time(this.ends[span] - this.starts[span]);
      return count > 1 ? `${counted(count, 'short span')} of one or more names in ${shown}, recorded as one mark` : shown;
    }

    // The spans of the lane below the pointer that are within a pixel of it.
    at(event) {
      const box = this.svg.getBoundingClientRect(), y = event.clientY - box.top, x = event.clientX - box.left;
      const lane = this.lanes.find(each => y >= each.y && y < each.y + LANE);
      if (!lane) return [];
      const pixel = (this.to - this.from) / this.width, when = this.from + x * pixel;
      const found = [];
      for (let at = after(lane.ends, when - pixel); at < lane.spans.length && this.starts[lane.spans[at]] <= when + pixel && found.length < 1000; at++) found.push(lane.spans[at]);
      return found.sort((a, b) => (this.ends[b] - this.starts[b]) - (this.ends[a] - this.starts[a]));
    }

    hover(event) {
      const found = this.at(event);
      if (!found.length) return hideTip();
      const [span] = found, count = found.reduce((sum, each) => sum + this.counts[each], 0);
      const isFine = this.ends[span] - this.starts[span] < (this.to - this.from) / this.width;  // else it is drawn as itself
      const more = found.length > 1 && isFine ? `${number(count)}${found.length < 1000 ? '' : ' or more'} spans within a pixel, drawn as one mark: zoom in to see each` : '';
      showTip(event, this.name(span) || '(no name)', [this.lead(span), OUTCOMES[this.outcomes[span]], this.track(span).thread, more]);
    }

    // The spans of the names that are searched for.
    matches() {
      return this.lanes.flatMap(lane => lane.spans.filter(span => this.hit[this.names[span]]))
        .sort((a, b) => this.starts[a] - this.starts[b] || this.laneOf[a] - this.laneOf[b]);
    }

    weight(span) { return this.counts[span]; }

    redraw(width = this.printing ? PAPER : this.stage.clientWidth) {
      if (!width) return;
      if (width !== this.width) {
        this.width = width;
        this.drawOverview();
      }
      this.drawRuler();
      this.drawWindow();
      const paths = new Map(), texts = [], bad = [], merged = [];
      let fine = 0, marks = 0;
      const top = this.printing ? 0 : this.stage.scrollTop - LANE, bottom = this.printing ? this.height : top + this.stage.clientHeight + 2 * LANE;
      for (const lane of this.lanes) {
        const shown = lane.y > top && lane.y < bottom;
        const drawn = this.drawLane(lane, shown, paths, texts, bad, merged);
        fine += drawn.fine;
        marks += drawn.marks;
      }
      const picture = document.createDocumentFragment();
      this.drawHeads(picture);
      for (const [name, d] of paths) picture.append(draw('path', {class: name, d: d.join('')}));
      if (merged.length) picture.append(this.hatch, draw('path', {fill: `url(#${this.hatch.id})`, d: merged.join('')}));
      if (bad.length) picture.append(draw('path', {class: 'bad', d: bad.join('')}));
      for (const [attributes, text] of texts) picture.append(draw('text', attributes, text));
      this.drawChosen(picture);
      this.svg.replaceChildren(picture);
      this.sayFine(fine, marks);
    }

    // Spans finer than a pixel become marks of two pixels, hatched and in the colour of the longest.
    drawLane(lane, shown, paths, texts, bad, merged) {
      const scale = this.width / (this.to - this.from), y = lane.y + 1, high = LANE - 2;
      let fine = 0, marks = 0, mark = null, hatched = null;
      const hatch = () => { if (hatched) merged.push(`M${hatched.x.toFixed(1)} ${y}H${hatched.end.toFixed(1)}v${high}H${hatched.x.toFixed(1)}z`); };
      const put = (name, x, width, failed, count) => {
        if (count > 1 && hatched && x - hatched.end < 0.5) hatched.end = x + width;
        else if (count > 1) {
          hatch();
          hatched = {x, end: x + width};
        }
        const key = 'c' + this.colour[name] + (this.hit && !this.hit[name] ? ' dim' : '');
        if (!paths.has(key)) paths.set(key, []);
        paths.get(key).push(`M${x.toFixed(1)} ${y}h${width.toFixed(1)}v${high}h${-width.toFixed(1)}z`);
        if (failed) bad.push(`M${x.toFixed(1)} ${y + high - 1}h${Math.max(width, 2).toFixed(1)}`);
      };
      const flush = () => {
        if (!mark) return;
        marks++;
        if (shown) put(mark.name, mark.x, Math.max(mark.end - mark.x, 1), mark.failed, mark.count);
        mark = null;
      };
      for (let at = after(lane.ends, this.from - 1e-9); at < lane.spans.length; at++) {
        const span = lane.spans[at], start = this.starts[span];
        if (start > this.to) break;
        const x = Math.max((start - this.from) * scale, -2), end = Math.min((this.ends[span] - this.from) * scale, this.width + 2);
        if (end - x >= 1) {
          flush();
          if (!shown) continue;
          const name = this.names[span], width = end - x, failed = this.outcomes[span];
          put(name, x, width > 3 ? width - 0.6 : width, failed, this.counts[span]);
          const text = width > 24 ? fits(this.run.names[name], Math.min(end, this.width) - Math.max(x, 0)) : '';
          if (text) texts.push([{x: Math.max(x, 0) + 3, y: y + 12, class: this.hit && !this.hit[name] ? 'dim' : ''}, text]);
          continue;
        }
        fine += this.counts[span];
        const hit = !this.hit || this.hit[this.names[span]];
        if (mark && (end - mark.x > 2 || x - mark.end > 1 || (hit && !mark.hit))) flush();
        const length = this.ends[span] - start;
        if (!mark) mark = {x, end, name: this.names[span], length, hit, failed: 0, count: 0};
        else if (length > mark.length) Object.assign(mark, {name: this.names[span], length});
        mark.end = Math.max(mark.end, end);
        mark.failed |= this.outcomes[span];
        mark.count += this.counts[span];
      }
      flush();
      hatch();
      return {fine, marks};
    }

    sayFine(fine, marks) {
      const where = this.from > 0 || this.to < this.whole ? `Shown: ${this.moments(this.from, this.to)}. ` : `Shown: all ${time(this.whole)}. `;
      this.status.textContent = where + (fine
        ? `${counted(fine, 'span is', 'spans are')} finer than a pixel here` + (fine > marks ? `, and drawn together as ${counted(marks, 'mark')}, hatched and in the colour of the longest; zoom in to see each.` : '.')
        : 'Each span is drawn for itself.');
      this.stage.dataset.view = `${Math.round(this.from)} ${Math.round(this.to)}`;
    }

    drawHeads(picture) {
      const step = niceStep(this.to - this.from, Math.max(this.width / 110, 2)), scale = this.width / (this.to - this.from);
      let d = '';
      for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) d += `M${((at - this.from) * scale).toFixed(1)} 0V${this.height}`;
      for (const head of this.heads) {
        if (head.className === 'process') picture.append(draw('rect', {class: 'band', x: 0, y: head.y - 3, width: this.width, height: HEAD}));
      }
      picture.append(draw('path', {class: 'grid', d}));
      for (const head of this.heads) picture.append(draw('text', {class: head.className, x: 4, y: head.y + 11}, fits(head.text, this.width)));
    }

    drawRuler() {
      const span = this.to - this.from, step = niceStep(span, Math.max(this.width / 110, 2)), scale = this.width / span;
      const marks = [];
      for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
        const x = (at - this.from) * scale;
        marks.push(draw('path', {d: `M${x.toFixed(1)} ${RULER - 5}v5`}));
        const isLast = x > this.width - 40;
        marks.push(draw('text', {x: isLast ? this.width - 2 : Math.max(x, 2), y: RULER - 8, 'text-anchor': isLast ? 'end' : x < 30 ? 'start' : 'middle'}, exactTime(at, step)));
      }
      this.ruler.replaceChildren(...marks);
    }

    // How many of the tracks were busy, over the whole recording.
    drawOverview() {
      const columns = Math.max(Math.floor(this.width), 1), busy = new Float64Array(columns + 1), scale = columns / this.whole;
      for (const lane of this.lanes) {
        if (lane.depth) continue;
        for (const span of lane.spans) {
          const first = this.starts[span] * scale, last = Math.min(this.ends[span] * scale, columns);
          for (let at = Math.floor(first); at < last; at++) busy[at] += Math.min(last, at + 1) - Math.max(first, at);
        }
      }
      const most = busy.reduce((a, b) => Math.max(a, b), 1e-9), base = OVERVIEW - 1;
      let d = `M0 ${base}`;
      for (let at = 0; at < columns; at++) d += `V${(base - busy[at] / most * (OVERVIEW - 6)).toFixed(1)}h1`;
      this.frame = draw('rect', {class: 'window', y: 0.5, height: OVERVIEW - 1});
      this.overview.replaceChildren(draw('path', {class: 'busy', d: d + `V${base}z`}), this.frame);
    }

    drawWindow() {
      const scale = this.width / this.whole;
      this.frame.setAttribute('x', this.from * scale);
      this.frame.setAttribute('width', Math.max((this.to - this.from) * scale, 2));
    }

    redrawChosen() {
      for (const each of this.svg.querySelectorAll('.chosen, .range')) each.remove();
      this.drawChosen(this.svg);
    }

    drawChosen(picture) {
      const scale = this.width / (this.to - this.from);
      if (this.range) {
        const [from, to] = this.range.map(when => clamp((when - this.from) * scale, -2, this.width + 2));
        picture.append(draw('rect', {class: 'range', x: from, y: 0, width: to - from, height: this.height}));
      }
      if (this.chosen < 0) return;
      const lane = this.lanes[this.laneOf[this.chosen]];
      const x = clamp((this.starts[this.chosen] - this.from) * scale, -4, this.width + 4), end = clamp((this.ends[this.chosen] - this.from) * scale, -4, this.width + 4);
      picture.append(draw('rect', {class: 'chosen', x, y: lane.y, width: Math.max(end - x, 2), height: LANE}));
    }

    // On paper all tracks are there, as wide as it is.
    print(starts) {
      this.printing = starts;
      this.width = 0;
      this.redraw();
      for (const svg of [this.svg, this.ruler, this.overview]) fitPaper(svg, starts);
    }
  }

  // The arguments of a span, one by one where they are an object of JSON.
  function argumentsOf(text) {
    let known = null;
    try { known = JSON.parse(text); } catch { /* shown as it is */ }
    const pairs = known && typeof known === 'object' && !Array.isArray(known) ? Object.entries(known) : [['Arguments', text]];
    return pairs.map(([key, value]) => [escaped(key), escaped(typeof value === 'string' ? value : JSON.stringify(value))]);
  }

  // A moment with as many digits as the step between moments needs, in the unit of a moment.
  function exactTime(ns, step, of = step * 5) {
    const [unit, per] = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]].find(([, size]) => of >= size) || ['ns', 1];
    const digits = Math.max(0, -Math.floor(Math.log10(step / per) + 1e-9));
    return (ns / per).toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits}) + ' ' + unit;
  }

  // ---- the tree

  const ROW = 20;

  class Icicle extends Drawing {
    constructor(root, run, label) {
      super();
      Object.assign(this, {root, run});
      this.colour = colours(run);
      this.key0 = 'sandwich-' + root.dataset.run;
      this.whole = make('button', {type: 'button', onclick: () => this.open(-1)}, 'Whole tree');
      this.heavy = make('button', {type: 'button', title: 'All frames below their callers, those with most time first', onclick: () => this.use(-1)}, 'Left-heavy');
      this.both = make('button', {type: 'button', title: 'Callers and callees of the selected frame, wherever it is called', onclick: () => this.use(this.tree.name[this.chosen])}, 'Sandwich');
      this.said = make('span', {class: 'said'});
      this.svg = draw('svg', {'aria-hidden': 'true'});
      this.stage = make('div', {class: 'stage tree', tabindex: '0', role: 'application', 'aria-roledescription': 'flame graph',
        'aria-label': `Call tree of ${label}. Arrow keys go from frame to frame, Enter makes one as wide as the page, C shows its callers and callees, Escape goes back.`}, this.svg);
      root.append(make('div', {class: 'tools'}, this.heavy, this.both, this.whole, ...this.searchTools('find-tree-' + root.dataset.run), this.said), this.stage, this.panel('frame', label),
        keysHint([[['←', '→', '↑', '↓'], 'from frame to frame'], [['P', 'N'], 'previous, next match'], [['F', 'Enter'], 'zoom to it'], [['C'], 'its callers and callees'], [['/'], 'search'], [['Esc'], 'back']]));
      root.hidden = false;
      this.use(run.names.indexOf(kept.get(this.key0)));
      this.listen();
      new ResizeObserver(() => this.redraw()).observe(root);
    }

    // Shows the callers and callees of a name, or with -1 all.
    use(name) {
      this.middle = name;
      this.tree = name < 0 ? this.run.icicle : this.sandwich(name);
      this.arrange();
      this.top = -1;
      this.chosen = name < 0 ? this.roots[0] ?? -1 : 0;
      this.isChosen = name >= 0;
      this.heavy.setAttribute('aria-pressed', name < 0);
      this.both.setAttribute('aria-pressed', name >= 0);
      keep(this.key0, this.run.names[name]);
      hideTip();
      this.search();
      this.tellChosen();
    }

    // A tree with all calls of a name as its root: callees are below it, and callers, with the time of the calls that
    // they made, above. Calls inside calls of the same name are callees.
    sandwich(name) {
      const {name: names, parent, self, total, count} = this.run.icicle;
      const tree = {name: [], parent: [], side: [], self: [], total: [], count: []}, known = new Map();
      const add = (above, side, of, own, all, calls) => {
        const key = `${above} ${side} ${of}`;
        let at = known.get(key);
        if (at === undefined) {
          known.set(key, at = tree.name.length);
          for (const [column, value] of Object.entries({name: of, parent: above, side, self: 0, total: 0, count: 0})) tree[column].push(value);
        }
        tree.self[at] += own;
        tree.total[at] += all;
        tree.count[at] += calls;
        return at;
      };
      const places = new Int32Array(names.length).fill(-1);
      names.forEach((of, place) => {
        const above = parent[place] < 0 ? -1 : places[parent[place]];
        if (above >= 0 || of === name) places[place] = add(above, 1, of, self[place], total[place], count[place]);
        if (above >= 0 || of !== name) return;
        for (let at = places[place], up = parent[place]; up >= 0; up = parent[up]) at = add(at, -1, names[up], 0, total[place], count[place]);
      });
      return tree;
    }

    // Where each frame begins, as a part of the whole: of frames beside each other, that with most time comes first.
    arrange() {
      const {parent, total, side} = this.tree;
      this.children = parent.map(() => []);
      this.roots = [];
      parent.forEach((above, place) => (above < 0 ? this.roots : this.children[above]).push(place));
      this.start = new Float64Array(parent.length);
      this.depth = new Int32Array(parent.length);
      this.all = Math.max(this.roots.reduce((sum, place) => sum + total[place], 0), 1);
      const waiting = [[this.roots, 0, 0]];
      while (waiting.length) {
        const [places, from, depth] = waiting.pop(), filled = {};
        for (const place of places.sort((a, b) => total[b] - total[a])) {
          const to = side && depth === 0 && parent[place] >= 0 ? side[place] : Math.sign(depth) || 1;
          this.depth[place] = parent[place] < 0 ? 0 : depth + to;
          this.start[place] = from + (filled[to] || 0);
          filled[to] = (filled[to] || 0) + total[place];
          waiting.push([this.children[place], this.start[place], this.depth[place]]);
        }
      }
    }

    listen() {
      const placeOf = event => event.target.dataset.place === undefined ? -1 : Number(event.target.dataset.place);
      this.svg.addEventListener('click', event => {
        const place = placeOf(event);
        if (place < 0) return;
        this.choose(place);
        this.open(place === this.top ? this.tree.parent[place] : place);
      });
      this.svg.addEventListener('pointermove', event => {
        const place = placeOf(event);
        if (place < 0) hideTip(); else showTip(event, this.name(place) || '(no name)', [this.lead(place), `${percent(this.tree.total[place] / this.all)} of ${this.middle < 0 ? 'the tree' : this.name(0) || '(no name)'}`]);
      });
      this.svg.addEventListener('pointerleave', hideTip);
      this.stage.addEventListener('focus', () => this.redraw());
      this.stage.addEventListener('blur', () => this.redraw());
      this.stage.addEventListener('keydown', event => this.key(event));
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const beside = this.row(), at = beside.indexOf(this.chosen), depth = this.depth[this.chosen];
      const next = side => depth * side < 0 ? this.tree.parent[this.chosen] : this.children[this.chosen]?.find(place => (this.depth[place] - depth) * side > 0);
      const acts = {
        ArrowLeft: () => this.choose(beside[at - 1]), ArrowRight: () => this.choose(beside[at + 1]), ArrowUp: () => this.choose(next(-1)), ArrowDown: () => this.choose(next(1)),
        n: () => this.step(1), p: () => this.step(-1), Enter: () => this.zoomToChosen(), f: () => this.zoomToChosen(), c: () => this.use(this.tree.name[this.chosen]), '/': () => this.query.focus(),
        Escape: () => { if (this.top >= 0) this.open(this.tree.parent[this.top]); else if (this.middle >= 0) this.use(-1); },
      };
      const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (act) {
        event.preventDefault();
        act();
      }
    }

    // The frames beside the chosen one.
    row() {
      const above = this.tree.parent[this.chosen] ?? -1;
      return above < 0 ? this.roots : this.children[above].filter(place => this.depth[place] === this.depth[this.chosen]);
    }

    matches() { return this.tree.name.flatMap((name, place) => this.hit[name] ? [place] : []).sort((a, b) => this.tree.total[b] - this.tree.total[a]); }

    weight() { return 1; }

    choose(place) {
      if (place === undefined || place < 0) return;
      this.chosen = place;
      this.isChosen = true;
      if (this.top >= 0 && !this.isInside(place, this.top)) this.top = this.tree.parent[place];
      this.tellChosen();
      this.later();
    }

    zoomToChosen() { if (this.chosen >= 0) this.open(this.chosen); }

    isInside(place, around) {
      while (place > around) place = this.tree.parent[place];
      return place === around;
    }

    open(place) {
      this.top = place;
      hideTip();
      this.redraw();
    }

    name(place) { return this.run.names[this.tree.name[place]]; }

    lead(place) {
      const {total, self, count} = this.tree, calls = counted(count[place], 'call');
      return this.depth[place] < 0 ? `${time(total[place])} in ${calls} of ${this.name(0) || '(no name)'} from here` : `self ${time(self[place])}, total ${time(total[place])}, ${calls}`;
    }

    tellChosen() {
      const place = this.chosen, {total, self, count, parent} = this.tree;
      if (place < 0) return this.tell('', []);
      const above = parent[place], isCaller = this.depth[place] < 0;
      this.tell(this.lead(place), [
        ['Self share', isCaller ? '' : percent(self[place] / this.all)], ['Total share', percent(total[place] / this.all)], ['Total of a call', count[place] ? time(total[place] / count[place]) : ''],
        [isCaller ? 'Calls' : 'Called by', above < 0 ? '' : this.name(above) || '(no name)'],
      ]);
    }

    redraw(width = this.printing ? PAPER : this.stage.clientWidth) {
      if (!width) return;
      const {tree} = this, from = this.top < 0 ? 0 : this.start[this.top], span = this.top < 0 ? this.all : Math.max(tree.total[this.top], 1);
      const scale = width / span, boxes = [], around = [];
      for (let place = this.top; place >= 0; place = tree.parent[place]) around.unshift(place);
      const waiting = this.top < 0 ? [...this.roots] : [this.top];
      let hidden = 0, least = 0, most = 0;
      const put = (place, x, size) => {
        boxes.push([place, x, size]);
        least = Math.min(least, this.depth[place]);
        most = Math.max(most, this.depth[place]);
      };
      for (const place of around.slice(0, -1)) put(place, 0, width);
      while (waiting.length) {
        const place = waiting.pop(), size = tree.total[place] * scale;
        if (size < 0.5) { hidden++; continue; }
        put(place, (this.start[place] - from) * scale, size);
        waiting.push(...this.children[place]);
      }
      const picture = document.createDocumentFragment(), y = place => (this.depth[place] - least) * ROW;
      for (const [place, x, size] of boxes) {
        const dim = this.hit && !this.hit[tree.name[place]] ? ' dim' : '', text = size > 24 ? fits(this.name(place), size) : '';
        picture.append(draw('rect', {class: 'c' + this.colour[tree.name[place]] + dim, x: x.toFixed(1), y: y(place), width: size.toFixed(1), height: ROW - 1, 'data-place': place}));
        if (text) picture.append(draw('text', {x: x + 4, y: y(place) + 13.5, class: dim}, text));
      }
      const chosen = boxes.find(([place]) => place === this.chosen);
      if (chosen && (this.isChosen || this.stage === document.activeElement)) {
        const [place, x, size] = chosen;
        picture.append(draw('rect', {class: 'chosen', x: x + 1, y: y(place) + 1, width: Math.max(size - 2, 1), height: ROW - 3}));
      }
      this.svg.setAttribute('height', (most - least + 1) * ROW);
      this.svg.replaceChildren(picture);
      this.whole.disabled = this.top < 0;
      this.said.textContent = hidden ? counted(hidden, 'frame is', 'frames are') + ' finer than half a pixel here, and not drawn.' : '';
      this.stage.dataset.top = this.top;
    }

    print(starts) {
      this.printing = starts;
      this.redraw();
      fitPaper(this.svg, starts);
    }
  }

  // ---- putting all together

  async function start() {
    themes();
    for (const table of document.querySelectorAll('table.sheet')) new Sheet(table);
    const drawn = [], [figures, ...runs] = await Promise.all([data.figures, ...data.runs].map(unpacked));
    for (const [name, info] of Object.entries(data.tables)) Object.assign(info, figures[name]);
    for (const [kind, Type] of [['timeline', Timeline], ['icicle', Icicle]]) {
      for (const root of document.querySelectorAll('.' + kind)) {
        let heading = root;
        while (heading && heading.tagName !== 'H3') heading = heading.previousElementSibling;
        drawn.push(new Type(root, runs[root.dataset.run], heading ? heading.textContent : 'the recording'));
      }
    }
    const closed = [];
    addEventListener('beforeprint', () => {
      for (const details of document.querySelectorAll('details:not([open])')) { details.open = true; closed.push(details); }
      drawn.forEach(each => each.print(true));
    });
    addEventListener('afterprint', () => {
      for (const details of closed.splice(0)) details.open = false;
      drawn.forEach(each => each.print(false));
    });
    document.documentElement.dataset.ready = 'yes';
  }

  start();
})();
