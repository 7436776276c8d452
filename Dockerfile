# The course in a container: it opens in a browser at the address that is printed, and what you
# write stays in my_notebooks.
#
#     docker build -t mha-lesson .
#     docker run --rm -it -p 8888:8888 -v mha-lesson:/home/learner/my_notebooks mha-lesson
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home learner \
    && install -d -o learner /home/learner/my_notebooks
ENV PATH=/opt/course/bin:$PATH
COPY . /tmp/course
WORKDIR /tmp/course
# The small build of PyTorch; without this index it would be that with CUDA, gigabytes.
RUN python3 -m venv /opt/course \
    && pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
       -c constraints.txt ".[lab]" \
    && mha-lesson weights
USER learner
WORKDIR /home/learner
EXPOSE 8888
CMD ["mha-lesson", "lab", "--ip=0.0.0.0", "--no-browser"]
