/** One module for all homes of the page, and the two files that hold it: index.html beside it, view.html around it. */

import { svelte } from '@sveltejs/vite-plugin-svelte';
import { readFileSync } from 'node:fs';
import { type Plugin, defineConfig } from 'vite';

const PAGE = new URL('index.html', import.meta.url);
const ICON = new URL('icon.svg', import.meta.url);
const MODULE = 'widget.js';

/** Writes index.html, which loads the module, and view.html, which holds it and asks for nothing. */
function homes(): Plugin {
  return {
    name: 'homes',
    generateBundle(_, bundle) {
      const made = bundle[MODULE];
      if (made?.type !== 'chunk') throw new Error(`${MODULE} must be one chunk`);
      const [page, icon] = [readFileSync(PAGE, 'utf8'), readFileSync(ICON, 'utf8')];
      const code = made.code.replace(/<\/script/g, '<\\/script').replace(/<!--/g, '<\\!--');
      const whole = page
        .replace('href="icon.svg"', () => `href="data:image/svg+xml,${encodeURIComponent(icon)}"`)
        .replace(`<script type="module" src="${MODULE}"></script>`, () => `<script type="module">${code}</script>`);
      if (whole.includes('src="')) throw new Error('view.html must not load anything');
      this.emitFile({ type: 'asset', fileName: 'index.html', source: page.replace(/ *<!--regard-view-->\n/, '') });
      this.emitFile({ type: 'asset', fileName: 'view.html', source: whole });
      this.emitFile({ type: 'asset', fileName: 'icon.svg', source: icon });
    },
  };
}

export default defineConfig({
  plugins: [svelte({ emitCss: false, compilerOptions: { css: 'injected' } }), homes()],
  build: {
    target: 'es2022',
    outDir: '../src/regard/serve/page',
    emptyOutDir: true,
    modulePreload: false,
    rollupOptions: {
      input: 'src/main.ts',
      preserveEntrySignatures: 'strict',
      output: { entryFileNames: MODULE, inlineDynamicImports: true },
    },
  },
});
