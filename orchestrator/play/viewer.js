// Stands in for what brax's viewer would load from a network: OrbitControls of three.js, the menu lil-gui, and pako.
// z points up, as in the viewer.

THREE.Object3D.DEFAULT_UP = THREE.Object3D.DefaultUp; // as newer versions of three.js call it

/** Drag to turn around `target`, wheel to come closer. */
class OrbitControls extends THREE.EventDispatcher {
  constructor(camera, element) {
    super();
    this.camera = camera;
    this.target = new THREE.Vector3();
    this.moved = true;
    element.style.touchAction = 'none';
    element.addEventListener('pointermove', (event) => {
      if (event.buttons) this.turn(event.movementX, event.movementY);
    });
    element.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.scale(Math.exp(event.deltaY / 1000));
    });
  }

  turn(right, down) {
    const arm = this.camera.position.clone().sub(this.target);
    const tilt = Math.acos(arm.z / arm.length()) - down / 200; // from the vertical
    const way = Math.atan2(arm.y, arm.x) - right / 200;
    const flat = arm.length() * Math.sin(Math.min(Math.max(tilt, 0.05), 3.0));
    const z = arm.length() * Math.cos(Math.min(Math.max(tilt, 0.05), 3.0));
    this.camera.position.copy(this.target).add(new THREE.Vector3(flat * Math.cos(way), flat * Math.sin(way), z));
    this.moved = true;
  }

  scale(factor) {
    this.camera.position.sub(this.target).multiplyScalar(factor).add(this.target);
    if (this.camera.followDistance) this.camera.followDistance *= factor;
    this.moved = true;
  }

  update() {
    this.camera.lookAt(this.target);
    const moved = this.moved;
    this.moved = false;
    return moved;
  }
}

/** One line of the menu: a button for a function, a box for a flag, a slider for a number with bounds. */
class Entry {
  constructor(object, key, low, high) {
    const held = object[key];
    this.object = object;
    this.key = key;
    this.changed = () => {};
    this.domElement = document.createElement('label');
    this.text = document.createElement('span');
    this.input = document.createElement('input');
    this.input.type = typeof held === 'function' ? 'button' : typeof held === 'boolean' ? 'checkbox' : 'range';
    this.domElement.append(this.input, this.text);
    this.domElement.style.display = 'block';
    this.input.step = 'any';
    if (high !== undefined) this.min(low).max(high);
    this.name(key);
    this.input.addEventListener(this.input.type === 'button' ? 'click' : 'input', () => this.act());
    this.updateDisplay();
  }

  act() {
    if (this.input.type === 'button') return this.object[this.key]();
    this.object[this.key] = this.input.type === 'checkbox' ? this.input.checked : Number(this.input.value);
    this.changed(this.object[this.key]);
  }

  updateDisplay() {
    const held = this.object[this.key];
    if (this.input.type === 'checkbox') this.input.checked = held;
    if (this.input.type === 'range') this.input.value = held;
  }

  name(text) {
    if (this.input.type === 'button') this.input.value = text;
    else this.text.textContent = ` ${text}`;
    return this;
  }

  min(low) { this.input.min = low; return this; }
  max(high) { this.input.max = high; return this; }
  step() { return this; }
  listen() { return this; }
  onChange(changed) { this.changed = changed; return this; }
}

/** A menu of entries and folders. */
class GUI {
  constructor(options, title) {
    this.domElement = document.createElement('details');
    this.domElement.style.cssText = 'background:#222c;color:#fff;font:12px sans-serif;padding:2px 8px';
    this.title = document.createElement('summary');
    this.title.className = 'title';
    this.title.style.color = 'inherit';
    this.title.textContent = title || 'Controls';
    this.domElement.append(this.title);
  }

  add(object, key, low, high) {
    const entry = new Entry(object, key, low, high);
    this.domElement.append(entry.domElement);
    return entry;
  }

  addFolder(title) {
    const folder = new GUI({}, title);
    this.domElement.append(folder.domElement);
    return folder;
  }

  open() { this.domElement.open = true; }
  close() { this.domElement.open = false; }
}

/** Start the viewer, at a distance (m), on a scene: JSON, compressed by zlib, in base64. */
async function show(Viewer, packed, distance) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new DecompressionStream('deflate');
  const writer = stream.writable.getWriter();
  writer.write(bytes);
  writer.close();
  const system = JSON.parse(await new Response(stream.readable).text());
  const viewer = new Viewer(document.getElementById('brax-viewer'), system);
  viewer.camera.position.setLength(distance);
  viewer.camera.followDistance = distance;
  viewer.gui.open();
  viewer.setSize();
}
